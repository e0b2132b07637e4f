package billing

// Component says what a line is for. Components follow each other in the order of
// 60-billing §2: what comes later is computed from the sums of what came before.
type Component string

// The components, in their order on a document.
const (
	UsageCharge   Component = "usage"             // quantity × price, tiers and percentage discounts inside
	Covered       Component = "covered"           // usage that a reservation, guarantee or free quota covers: price 0
	MinimumCharge Component = "minimum_charge"    // what a short start lacks of its minimum
	CapCredit     Component = "monthly_cap"       // negative: what a slot used beyond its monthly cap
	Commitment    Component = "commitment"        // what eligible usage lacks of the committed amount
	FixedDiscount Component = "fixed_discount"    // negative
	PromoCredit   Component = "promo_credit"      // negative: a promotional grant; reduces the tax base
	Adjustment    Component = "adjustment"        // usage that arrived after its month was closed
	CarryOver     Component = "carry_over"        // a small amount of an earlier period that was not invoiced then
	Correction    Component = "correction"        // of a credit note: takes back a line of another document
	AdvancePaid   Component = "advance"           // of an advance invoice: the prepayment itself
	AdvanceOffset Component = "advance_deduction" // negative: an advance that was invoiced before
)

// components is the order of components on a document.
var components = []Component{
	UsageCharge, Covered, MinimumCharge, CapCredit, Commitment, FixedDiscount, PromoCredit,
	Adjustment, CarryOver, Correction, AdvancePaid, AdvanceOffset,
}

// Order is the place of the component on a document, 0 first; unknown ones last.
func (c Component) Order() int {
	for i, known := range components {
		if c == known {
			return i
		}
	}
	return len(components)
}
