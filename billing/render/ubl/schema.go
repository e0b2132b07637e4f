package ubl

import "encoding/xml"

// The parts of UBL 2.1 that the documents use, in the order of its schema. BT- and
// BG- numbers are those of EN 16931.

type amount struct {
	Currency string `xml:"currencyID,attr"`
	Value    string `xml:",chardata"`
}

type quantity struct {
	Unit  string `xml:"unitCode,attr"`
	Value string `xml:",chardata"`
}

type identifier struct {
	Scheme string `xml:"schemeID,attr,omitempty"`
	Value  string `xml:",chardata"`
}

// document is an Invoice or a CreditNote; what the other kind has stays empty.
type document struct {
	XMLName        xml.Name
	Namespace      string      `xml:"xmlns,attr"`
	CAC            string      `xml:"xmlns:cac,attr"`
	CBC            string      `xml:"xmlns:cbc,attr"`
	Customization  string      `xml:"cbc:CustomizationID"`              // BT-24
	ID             string      `xml:"cbc:ID"`                           // BT-1
	IssueDate      string      `xml:"cbc:IssueDate"`                    // BT-2
	DueDate        string      `xml:"cbc:DueDate,omitempty"`            // BT-9
	InvoiceType    string      `xml:"cbc:InvoiceTypeCode,omitempty"`    // BT-3
	CreditNoteType string      `xml:"cbc:CreditNoteTypeCode,omitempty"` // BT-3
	Notes          []string    `xml:"cbc:Note"`                         // BT-22
	Currency       string      `xml:"cbc:DocumentCurrencyCode"`         // BT-5
	Period         *period     `xml:"cac:InvoicePeriod"`                // BG-14
	Preceding      *preceding  `xml:"cac:BillingReference"`             // BG-3
	Seller         role        `xml:"cac:AccountingSupplierParty"`      // BG-4
	Buyer          role        `xml:"cac:AccountingCustomerParty"`      // BG-7
	Means          *means      `xml:"cac:PaymentMeans"`                 // BG-16
	Terms          *terms      `xml:"cac:PaymentTerms"`                 // BT-20
	Allowances     []allowance `xml:"cac:AllowanceCharge"`              // BG-20
	Tax            taxTotal    `xml:"cac:TaxTotal"`                     // BT-110, BG-23
	Totals         totals      `xml:"cac:LegalMonetaryTotal"`           // BG-22
	InvoiceLines   []line      `xml:"cac:InvoiceLine"`                  // BG-25
	CreditLines    []line      `xml:"cac:CreditNoteLine"`               // BG-25
}

type period struct {
	Start string `xml:"cbc:StartDate,omitempty"` // BT-73, BT-134
	End   string `xml:"cbc:EndDate,omitempty"`   // BT-74, BT-135, the last day
}

type preceding struct {
	ID     string `xml:"cac:InvoiceDocumentReference>cbc:ID"`                  // BT-25
	Issued string `xml:"cac:InvoiceDocumentReference>cbc:IssueDate,omitempty"` // BT-26
}

type role struct {
	Party party `xml:"cac:Party"`
}

type party struct {
	Endpoint *identifier `xml:"cbc:EndpointID"`                            // BT-34, BT-49
	ID       *partyID    `xml:"cac:PartyIdentification"`                   // BT-29, BT-46
	Address  address     `xml:"cac:PostalAddress"`                         // BG-5, BG-8
	TaxIDs   []taxScheme `xml:"cac:PartyTaxScheme"`                        // BT-31, BT-32, BT-48
	Name     string      `xml:"cac:PartyLegalEntity>cbc:RegistrationName"` // BT-27, BT-44
}

type partyID struct {
	ID string `xml:"cbc:ID"`
}

type address struct {
	Street     string `xml:"cbc:StreetName,omitempty"`           // BT-35, BT-50
	Additional string `xml:"cbc:AdditionalStreetName,omitempty"` // BT-36, BT-51
	Line       *rest  `xml:"cac:AddressLine"`                    // BT-162, BT-163
	Country    string `xml:"cac:Country>cbc:IdentificationCode"` // BT-40, BT-55
}

type rest struct {
	Line string `xml:"cbc:Line"`
}

type taxScheme struct {
	ID     string `xml:"cbc:CompanyID"`
	Scheme string `xml:"cac:TaxScheme>cbc:ID"`
}

type means struct {
	Code      string   `xml:"cbc:PaymentMeansCode"`         // BT-81
	DueDate   string   `xml:"cbc:PaymentDueDate,omitempty"` // BT-9 of a credit note
	Reference string   `xml:"cbc:PaymentID,omitempty"`      // BT-83
	Account   *account `xml:"cac:PayeeFinancialAccount"`    // BG-17
}

type account struct {
	ID   string   `xml:"cbc:ID"`                         // BT-84
	Name string   `xml:"cbc:Name,omitempty"`             // BT-85
	Bank *partyID `xml:"cac:FinancialInstitutionBranch"` // BT-86
}

type terms struct {
	Note string `xml:"cbc:Note"`
}

type allowance struct {
	Charge     bool         `xml:"cbc:ChargeIndicator"`
	ReasonCode string       `xml:"cbc:AllowanceChargeReasonCode,omitempty"` // BT-98
	Reason     string       `xml:"cbc:AllowanceChargeReason"`               // BT-97, BT-139
	Amount     amount       `xml:"cbc:Amount"`                              // BT-92, BT-136
	Base       *amount      `xml:"cbc:BaseAmount"`                          // BT-137
	Category   *taxCategory `xml:"cac:TaxCategory"`                         // BT-95, BT-96
}

type taxCategory struct {
	ID      string  `xml:"cbc:ID"`                               // BT-118, BT-151
	Percent *string `xml:"cbc:Percent"`                          // BT-119, BT-152; absent for O
	Code    string  `xml:"cbc:TaxExemptionReasonCode,omitempty"` // BT-121
	Reason  string  `xml:"cbc:TaxExemptionReason,omitempty"`     // BT-120
	Scheme  string  `xml:"cac:TaxScheme>cbc:ID"`
}

type taxTotal struct {
	Amount amount     `xml:"cbc:TaxAmount"` // BT-110
	Groups []subtotal `xml:"cac:TaxSubtotal"`
}

type subtotal struct {
	Base     amount      `xml:"cbc:TaxableAmount"` // BT-116
	Amount   amount      `xml:"cbc:TaxAmount"`     // BT-117
	Category taxCategory `xml:"cac:TaxCategory"`
}

type totals struct {
	Lines      amount  `xml:"cbc:LineExtensionAmount"`  // BT-106
	Exclusive  amount  `xml:"cbc:TaxExclusiveAmount"`   // BT-109
	Inclusive  amount  `xml:"cbc:TaxInclusiveAmount"`   // BT-112
	Allowances *amount `xml:"cbc:AllowanceTotalAmount"` // BT-107
	Prepaid    *amount `xml:"cbc:PrepaidAmount"`        // BT-113
	Payable    amount  `xml:"cbc:PayableAmount"`        // BT-115
}

type line struct {
	ID               string      `xml:"cbc:ID"`                  // BT-126
	Note             string      `xml:"cbc:Note,omitempty"`      // BT-127
	InvoicedQuantity *quantity   `xml:"cbc:InvoicedQuantity"`    // BT-129, BT-130
	CreditedQuantity *quantity   `xml:"cbc:CreditedQuantity"`    // BT-129, BT-130
	Amount           amount      `xml:"cbc:LineExtensionAmount"` // BT-131
	Period           *period     `xml:"cac:InvoicePeriod"`       // BG-26
	Allowances       []allowance `xml:"cac:AllowanceCharge"`     // BG-27
	Item             item        `xml:"cac:Item"`                // BG-31
	Price            price       `xml:"cac:Price"`               // BG-29
}

type item struct {
	Description string      `xml:"cbc:Description,omitempty"`     // BT-154
	Name        string      `xml:"cbc:Name"`                      // BT-153
	SKU         *partyID    `xml:"cac:SellersItemIdentification"` // BT-155
	Category    taxCategory `xml:"cac:ClassifiedTaxCategory"`     // BG-30
	Properties  []property  `xml:"cac:AdditionalItemProperty"`    // BG-32
}

type property struct {
	Name  string `xml:"cbc:Name"`  // BT-160
	Value string `xml:"cbc:Value"` // BT-161
}

type price struct {
	Amount amount    `xml:"cbc:PriceAmount"`  // BT-146
	Base   *quantity `xml:"cbc:BaseQuantity"` // BT-149, BT-150
}
