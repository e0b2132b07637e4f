package store

import "github.com/tranche-cloud/tranche/billing"

// partyRow is a party as its snapshot is stored.
type partyRow struct {
	Name     string   `json:"name"`
	Address  []string `json:"address,omitempty"`
	Country  string   `json:"country,omitempty"`
	TaxID    string   `json:"tax_id,omitempty"`
	Bank     *bankRow `json:"bank,omitempty"`
	Endpoint string   `json:"endpoint,omitempty"`
}

type bankRow struct {
	Holder string `json:"holder,omitempty"`
	IBAN   string `json:"iban,omitempty"`
	BIC    string `json:"bic,omitempty"`
	Name   string `json:"name,omitempty"`
}

func partyOf(p billing.Party) partyRow {
	return partyRow{
		Name: p.Name, Address: p.Address, Country: p.Country, TaxID: p.TaxID, Bank: (*bankRow)(p.Bank), Endpoint: p.Endpoint,
	}
}

func (r partyRow) party() billing.Party {
	return billing.Party{
		Name: r.Name, Address: r.Address, Country: r.Country, TaxID: r.TaxID, Bank: (*billing.Bank)(r.Bank), Endpoint: r.Endpoint,
	}
}
