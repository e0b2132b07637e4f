package tax

import "time"

// Starter is a beginning for an issuer of electronically supplied services: the
// general rules of the EU for such services, and the standard rates of its member
// states as published in 2026. An operator reviews, changes and completes it.
//
// Northern Ireland counts as outside the EU here: its special status is for goods,
// not for services. Territories that are no part of the VAT area of the EU come
// before the countries they belong to.
func Starter() Table {
	return Table{Rules: starterRules(), Rates: starterRates(), Territories: starterTerritories()}
}

func starterRules() []Rule {
	return []Rule{
		{Buyer: Home, Category: Standard, RateOf: OfSeller},
		{Buyer: Unknown, Category: Standard, RateOf: OfSeller},
		{Seller: Union, Buyer: OtherEU, Status: Business, Proof: Confirmed, Category: ReverseCharge, Note: NoteReverseCharge},
		{Seller: Union, Buyer: OtherEU, Category: Standard, RateOf: OfBuyer},
		{Seller: Union, Buyer: Elsewhere, Category: OutsideScope, Note: NoteOutsideEU},
		{Seller: Elsewhere, Category: OutsideScope, Note: NoteNotTaxable},
	}
}

func day(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

// starterRates are standard rates in parts per million.
func starterRates() []Rate {
	change := func(territory string, before, after int64, at time.Time) []Rate {
		return []Rate{{territory, before, time.Time{}, at}, {territory, after, at, time.Time{}}}
	}
	rates := append(change("FI", 240_000, 255_000, day(2024, 9, 1)), change("EE", 220_000, 240_000, day(2025, 7, 1))...)
	rates = append(rates, change("SK", 200_000, 230_000, day(2025, 1, 1))...)
	rates = append(rates, change("RO", 190_000, 210_000, day(2025, 8, 1))...)
	return append(rates, []Rate{
		{Territory: "AT", PPM: 200_000},
		{Territory: "BE", PPM: 210_000},
		{Territory: "BG", PPM: 200_000},
		{Territory: "CY", PPM: 190_000},
		{Territory: "CZ", PPM: 210_000},
		{Territory: "DE", PPM: 190_000},
		{Territory: "DK", PPM: 250_000},
		{Territory: "ES", PPM: 210_000},
		{Territory: "FR", PPM: 200_000},
		{Territory: "GR", PPM: 240_000},
		{Territory: "HR", PPM: 250_000},
		{Territory: "HU", PPM: 270_000},
		{Territory: "IE", PPM: 230_000},
		{Territory: "IT", PPM: 220_000},
		{Territory: "LT", PPM: 210_000},
		{Territory: "LU", PPM: 170_000},
		{Territory: "LV", PPM: 210_000},
		{Territory: "MT", PPM: 180_000},
		{Territory: "NL", PPM: 210_000},
		{Territory: "PL", PPM: 230_000},
		{Territory: "PT", PPM: 230_000},
		{Territory: "SE", PPM: 250_000},
		{Territory: "SI", PPM: 220_000},
	}...)
}

func starterTerritories() []Territory {
	return []Territory{
		{Code: "ES-CN", Country: "ES", Postcodes: []string{"35", "38"}},
		{Code: "ES-CE", Country: "ES", Postcodes: []string{"51"}},
		{Code: "ES-ML", Country: "ES", Postcodes: []string{"52"}},
		{Code: "DE-BUS", Country: "DE", Postcodes: []string{"78266"}},
		{Code: "DE-HEL", Country: "DE", Postcodes: []string{"27498"}},
		{Code: "IT-LIV", Country: "IT", Postcodes: []string{"23041", "23030"}},
		{Code: "FI-AX", Country: "FI", Postcodes: []string{"22"}},
		{Code: "GR-ATH", Country: "GR", Postcodes: []string{"63086", "63087"}},
		{Code: "FR-OM", Country: "FR", Postcodes: []string{"971", "972", "973", "974", "975", "976", "977", "978", "986", "987", "988"}},
		{Code: "XI", Country: "GB", Postcodes: []string{"BT"}},
	}
}

// members are the member states of the EU by ISO code.
var members = map[string]bool{
	"AT": true, "BE": true, "BG": true, "CY": true, "CZ": true, "DE": true, "DK": true, "EE": true, "ES": true,
	"FI": true, "FR": true, "GR": true, "HR": true, "HU": true, "IE": true, "IT": true, "LT": true, "LU": true,
	"LV": true, "MT": true, "NL": true, "PL": true, "PT": true, "RO": true, "SE": true, "SI": true, "SK": true,
}

func member(country string) bool { return members[country] }
