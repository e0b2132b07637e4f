package tax

// Note is the key of a legal mention.
type Note string

// The notes.
const (
	NoteReverseCharge Note = "reverse_charge"
	NoteOutsideEU     Note = "outside_eu"
	NoteNotTaxable    Note = "not_taxable"
	NoteExempt        Note = "exempt"
	NoteZeroRated     Note = "zero_rated"
	NoteNoTable       Note = "no_table"
)

// notes are the mentions in the languages of documents.
var notes = map[Note]map[string]string{
	NoteReverseCharge: {
		"en": "Reverse charge: the recipient owes the VAT.",
		"de": "Steuerschuldnerschaft des Leistungsempfängers (Reverse Charge).",
		"zh": "反向征税:增值税由接收方缴纳。",
	},
	NoteOutsideEU: {
		"en": "Not taxable: the place of supply lies outside the EU.",
		"de": "Nicht steuerbar: Der Leistungsort liegt außerhalb der EU.",
		"zh": "不征税:服务提供地在欧盟境外。",
	},
	NoteNotTaxable: {
		"en": "Not taxable in the country of the seller.",
		"de": "Im Land des Verkäufers nicht steuerbar.",
		"zh": "在卖方所在国不征税。",
	},
	NoteExempt: {
		"en": "Exempt from tax.",
		"de": "Steuerbefreit.",
		"zh": "免税。",
	},
	NoteZeroRated: {
		"en": "Taxed at the rate of zero.",
		"de": "Mit dem Steuersatz null besteuert.",
		"zh": "适用零税率。",
	},
	NoteNoTable: {
		"en": "No tax was computed: the issuer has no tax table.",
		"de": "Es wurde keine Steuer berechnet: Der Aussteller hat keine Steuertabelle.",
		"zh": "未计算税款:开票方没有税率表。",
	},
}

func (n Note) known() bool { return notes[n] != nil }

// Text returns the mention in a language (en, de, zh), in English for any other;
// "" for no note.
func (n Note) Text(language string) string {
	if text, ok := notes[n][language]; ok {
		return text
	}
	return notes[n]["en"]
}
