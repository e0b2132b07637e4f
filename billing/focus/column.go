package focus

// Column is a column of the export: those of FOCUS 1.2 by name, then our own.
type Column int

// The columns. Those that FOCUS has for a provider with several kinds of billing
// accounts or pricing currencies are absent: there is one of each.
const (
	AvailabilityZone Column = iota
	BilledCost
	BillingAccountID
	BillingAccountName
	BillingCurrency
	BillingPeriodEnd
	BillingPeriodStart
	CapacityReservationID
	CapacityReservationStatus
	ChargeCategory
	ChargeClass
	ChargeDescription
	ChargeFrequency
	ChargePeriodEnd
	ChargePeriodStart
	CommitmentDiscountCategory
	CommitmentDiscountID
	CommitmentDiscountName
	CommitmentDiscountQuantity
	CommitmentDiscountStatus
	CommitmentDiscountType
	CommitmentDiscountUnit
	ConsumedQuantity
	ConsumedUnit
	ContractedCost
	ContractedUnitPrice
	EffectiveCost
	InvoiceID
	InvoiceIssuerName
	ListCost
	ListUnitPrice
	PricingCategory
	PricingQuantity
	PricingUnit
	ProviderName
	PublisherName
	RegionID
	RegionName
	ResourceID
	ResourceName
	ResourceType
	ServiceCategory
	ServiceName
	ServiceSubcategory
	SkuID
	SkuMeter
	SkuPriceDetails
	SkuPriceID
	SubAccountID
	SubAccountName
	SubAccountType
	Tags
	Component      // what the line is for, by our name
	Corrects       // number and line of the document that the row corrects
	Funding        // invoice or prepaid: who paid
	InvoiceLine    // number of the line
	IsolationGPU   // class of the GPU
	IsolationHost  // class of the host
	PrepaidApplied // what the prepaid balance paid of the row
	PriceVersion   // of the price book
	SegmentsHash   // over the usage segments behind the row
	Simulated      // true where it ran on simulated hardware
	columns
)

// kind is what a column holds.
type kind int

const (
	text    kind = iota
	decimal      // at most scale decimals
	instant      // whole seconds, UTC
	object       // flat JSON
)

// spec is what holds for a column whatever its row.
type spec struct {
	name     string
	kind     kind
	scale    int
	required bool     // never null
	allowed  []string // nil: any
}

// Decimals of the columns: money of documents and quantities have 12 at most, the
// product of a quantity and a price 24.
const (
	scale   = 12
	product = 2 * scale
)

var specs = [columns]spec{
	AvailabilityZone:           {name: "AvailabilityZone"},
	BilledCost:                 {name: "BilledCost", kind: decimal, scale: scale, required: true},
	BillingAccountID:           {name: "BillingAccountId", required: true},
	BillingAccountName:         {name: "BillingAccountName"},
	BillingCurrency:            {name: "BillingCurrency", required: true},
	BillingPeriodEnd:           {name: "BillingPeriodEnd", kind: instant, required: true},
	BillingPeriodStart:         {name: "BillingPeriodStart", kind: instant, required: true},
	CapacityReservationID:      {name: "CapacityReservationId"},
	CapacityReservationStatus:  {name: "CapacityReservationStatus", allowed: []string{used, unused}},
	ChargeCategory:             {name: "ChargeCategory", required: true, allowed: []string{usage, purchase, tax, credit, adjustment}},
	ChargeClass:                {name: "ChargeClass", allowed: []string{correction}},
	ChargeDescription:          {name: "ChargeDescription"},
	ChargeFrequency:            {name: "ChargeFrequency", required: true, allowed: []string{usageBased, recurring, oneTime}},
	ChargePeriodEnd:            {name: "ChargePeriodEnd", kind: instant, required: true},
	ChargePeriodStart:          {name: "ChargePeriodStart", kind: instant, required: true},
	CommitmentDiscountCategory: {name: "CommitmentDiscountCategory", allowed: []string{"Usage", "Spend"}},
	CommitmentDiscountID:       {name: "CommitmentDiscountId"},
	CommitmentDiscountName:     {name: "CommitmentDiscountName"},
	CommitmentDiscountQuantity: {name: "CommitmentDiscountQuantity", kind: decimal, scale: scale},
	CommitmentDiscountStatus:   {name: "CommitmentDiscountStatus", allowed: []string{used, unused}},
	CommitmentDiscountType:     {name: "CommitmentDiscountType"},
	CommitmentDiscountUnit:     {name: "CommitmentDiscountUnit"},
	ConsumedQuantity:           {name: "ConsumedQuantity", kind: decimal, scale: scale},
	ConsumedUnit:               {name: "ConsumedUnit"},
	ContractedCost:             {name: "ContractedCost", kind: decimal, scale: product, required: true},
	ContractedUnitPrice:        {name: "ContractedUnitPrice", kind: decimal, scale: scale},
	EffectiveCost:              {name: "EffectiveCost", kind: decimal, scale: scale, required: true},
	InvoiceID:                  {name: "InvoiceId"},
	InvoiceIssuerName:          {name: "InvoiceIssuerName", required: true},
	ListCost:                   {name: "ListCost", kind: decimal, scale: product, required: true},
	ListUnitPrice:              {name: "ListUnitPrice", kind: decimal, scale: scale},
	PricingCategory:            {name: "PricingCategory", allowed: []string{standard, dynamic, committed, "Other"}},
	PricingQuantity:            {name: "PricingQuantity", kind: decimal, scale: scale},
	PricingUnit:                {name: "PricingUnit"},
	ProviderName:               {name: "ProviderName", required: true},
	PublisherName:              {name: "PublisherName", required: true},
	RegionID:                   {name: "RegionId"},
	RegionName:                 {name: "RegionName"},
	ResourceID:                 {name: "ResourceId"},
	ResourceName:               {name: "ResourceName"},
	ResourceType:               {name: "ResourceType"},
	ServiceCategory:            {name: "ServiceCategory", required: true, allowed: []string{"Compute", "Storage", "Networking"}},
	ServiceName:                {name: "ServiceName", required: true},
	ServiceSubcategory:         {name: "ServiceSubcategory"},
	SkuID:                      {name: "SkuId"},
	SkuMeter:                   {name: "SkuMeter"},
	SkuPriceDetails:            {name: "SkuPriceDetails", kind: object},
	SkuPriceID:                 {name: "SkuPriceId"},
	SubAccountID:               {name: "SubAccountId"},
	SubAccountName:             {name: "SubAccountName"},
	SubAccountType:             {name: "SubAccountType"},
	Tags:                       {name: "Tags", kind: object},
	Component:                  {name: "x_Component"},
	Corrects:                   {name: "x_Corrects"},
	Funding:                    {name: "x_Funding", required: true, allowed: []string{byInvoice, byPrepaid}},
	InvoiceLine:                {name: "x_InvoiceLine"},
	IsolationGPU:               {name: "x_IsolationGpu"},
	IsolationHost:              {name: "x_IsolationHost"},
	PrepaidApplied:             {name: "x_PrepaidApplied", kind: decimal, scale: scale},
	PriceVersion:               {name: "x_PriceVersion"},
	SegmentsHash:               {name: "x_SegmentsHash"},
	Simulated:                  {name: "x_Simulated"},
}

// Values of columns with allowed values.
const (
	usage      = "Usage"
	purchase   = "Purchase"
	tax        = "Tax"
	credit     = "Credit"
	adjustment = "Adjustment"
	correction = "Correction"
	usageBased = "Usage-Based"
	recurring  = "Recurring"
	oneTime    = "One-Time"
	used       = "Used"
	unused     = "Unused"
	standard   = "Standard"
	dynamic    = "Dynamic"
	committed  = "Committed"
	byInvoice  = "invoice"
	byPrepaid  = "prepaid"
)

// String is the column's id in the export.
func (c Column) String() string {
	if c < 0 || c >= columns {
		return "unknown"
	}
	return specs[c].name
}

// Row is one charge; "" is null.
type Row [columns]string

// service is what a meter's usage is in the words of FOCUS.
type service struct{ name, category, subcategory, resource, meter, priced, consumed string }

// The services by meter; what belongs to no meter belongs to GPUs.
var services = map[string]service{
	"gpu":          {"Virtual GPU", "Compute", "Other (Compute)", "vGPU Instance", "GPU Time", "GPU-Hours", "GPU-Seconds"},
	"gpu_retained": {"Virtual GPU", "Compute", "Other (Compute)", "vGPU Instance", "Retained GPU Time", "GPU-Hours", "GPU-Seconds"},
	"reservation":  {"Virtual GPU", "Compute", "Other (Compute)", "Reservation", "Reserved GPU Time", "GPU-Hours", "GPU-Seconds"},
	"storage":      {"Volume", "Storage", "Block Storage", "Volume", "Volume Capacity", "GiB-Hours", "MiB-Seconds"},
	"ip":           {"Public Address", "Networking", "Network Infrastructure", "IP Address", "Address Time", "Address-Hours", "Address-Seconds"},
	"egress":       {"Data Transfer", "Networking", "Network Connectivity", "vGPU Instance", "Egress", "GiB", "B"},
}

func serviceOf(meter string) service {
	if s, ok := services[meter]; ok {
		return s
	}
	return services["gpu"]
}
