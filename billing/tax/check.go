package tax

import (
	"fmt"
	"slices"

	"github.com/tranche-cloud/tranche/internal/fault"
)

// million is one whole in parts per million.
const million = 1_000_000

// Check refuses a table that could decide two ways or nothing. It fails with
// fault.Invalid, naming the row.
func (t Table) Check() error {
	for i, r := range t.Rules {
		if err := r.check(fmt.Sprintf("/rules/%d", i)); err != nil {
			return err
		}
	}
	for i, r := range t.Rates {
		at := fmt.Sprintf("/rates/%d", i)
		switch {
		case r.Territory == "":
			return refuse(at+"/territory", "A rate needs a territory.")
		case r.PPM < 0 || r.PPM > million:
			return refuse(at+"/rate", "A rate lies between 0 and 100 percent.")
		case !r.From.IsZero() && !r.To.IsZero() && !r.From.Before(r.To):
			return refuse(at, "A rate ends after it begins.")
		}
		for _, o := range t.Rates[:i] {
			if o.Territory == r.Territory && o.overlaps(r) {
				return refuse(at, fmt.Sprintf("Two rates of %.8s hold at one time.", r.Territory))
			}
		}
	}
	for i, x := range t.Territories {
		if x.Code == "" || x.Country == "" || len(x.Postcodes) == 0 || slices.Contains(x.Postcodes, "") {
			return refuse(fmt.Sprintf("/territories/%d", i), "A territory needs a code, a country and postcodes.")
		}
	}
	return nil
}

func (r Rule) check(at string) error {
	switch {
	case !slices.Contains(categories, r.Category):
		return refuse(at+"/category", fmt.Sprintf("%.8q is no category: S, AE, O, E or Z.", string(r.Category)))
	case r.Category == Standard && r.RateOf != OfSeller && r.RateOf != OfBuyer:
		return refuse(at+"/rate_of", "A rule of category S says whose rate holds: seller or buyer.")
	case r.Category == ReverseCharge && (r.Buyer != OtherEU || r.Seller != Union || r.Proof != Confirmed):
		return refuse(at, "Reverse charge needs a seller in the EU, a buyer in another member state and a confirmed tax id.")
	case r.Status != "" && r.Status != Business && r.Status != Consumer:
		return refuse(at+"/status", "A buyer is a business or a consumer.")
	case r.Proof != AnyProof && r.Proof != Confirmed && r.Proof != Missing:
		return refuse(at+"/proof", "A tax id is confirmed or missing.")
	case r.Note != "" && !r.Note.known():
		return refuse(at+"/note", fmt.Sprintf("The note %.32q is unknown.", string(r.Note)))
	}
	return nil
}

func (r Rate) overlaps(o Rate) bool {
	return (r.To.IsZero() || o.From.Before(r.To)) && (o.To.IsZero() || r.From.Before(o.To))
}

func refuse(pointer, detail string) *fault.Error {
	return fault.New(fault.Invalid, "request.invalid", detail).
		With(fault.Field{Pointer: pointer, Code: "rule", Detail: detail})
}
