package id

type (
	orgKind        struct{}
	projectKind    struct{}
	keyKind        struct{}
	instanceKind   struct{}
	assignmentKind struct{}
	claimKind      struct{}
	operationKind  struct{}
	eventKind      struct{}
	segmentKind    struct{}
	invoiceKind    struct{}
	hostKind       struct{}
	gpuKind        struct{}
	joinTokenKind  struct{}
	priceBookKind  struct{}
	priceVerKind   struct{}
	requestKind    struct{}
	registryKind   struct{}
	authorityKind  struct{}
	interruptKind  struct{}
	contractKind   struct{}
	reservKind     struct{}
	grantKind      struct{}
	budgetKind     struct{}
	paymentKind    struct{}
	approvalKind   struct{}
	discrepKind    struct{}
	attemptKind    struct{}
	disputeKind    struct{}
	statementKind  struct{}
)

func (orgKind) prefix() string        { return "org" }
func (projectKind) prefix() string    { return "proj" }
func (keyKind) prefix() string        { return "key" }
func (instanceKind) prefix() string   { return "inst" }
func (assignmentKind) prefix() string { return "asg" }
func (claimKind) prefix() string      { return "claim" }
func (operationKind) prefix() string  { return "op" }
func (eventKind) prefix() string      { return "evt" }
func (segmentKind) prefix() string    { return "seg" }
func (invoiceKind) prefix() string    { return "inv" }
func (hostKind) prefix() string       { return "host" }
func (gpuKind) prefix() string        { return "gpu" }
func (joinTokenKind) prefix() string  { return "join" }
func (priceBookKind) prefix() string  { return "pbk" }
func (priceVerKind) prefix() string   { return "ver" }
func (requestKind) prefix() string    { return "req" }
func (registryKind) prefix() string   { return "reg" }
func (authorityKind) prefix() string  { return "sshca" }
func (interruptKind) prefix() string  { return "intr" }
func (contractKind) prefix() string   { return "ctr" }
func (reservKind) prefix() string     { return "rsv" }
func (grantKind) prefix() string      { return "grant" }
func (budgetKind) prefix() string     { return "bud" }
func (paymentKind) prefix() string    { return "pay" }
func (approvalKind) prefix() string   { return "apr" }
func (discrepKind) prefix() string    { return "disc" }
func (attemptKind) prefix() string    { return "pat" }
func (disputeKind) prefix() string    { return "dsp" }
func (statementKind) prefix() string  { return "stl" }

// One type a noun; the comment is the prefix of its text.
type (
	Org          = ID[orgKind]        // org
	Project      = ID[projectKind]    // proj
	Key          = ID[keyKind]        // key
	Instance     = ID[instanceKind]   // inst
	Assignment   = ID[assignmentKind] // asg
	Claim        = ID[claimKind]      // claim
	Operation    = ID[operationKind]  // op
	Event        = ID[eventKind]      // evt
	Segment      = ID[segmentKind]    // seg
	Invoice      = ID[invoiceKind]    // inv
	Host         = ID[hostKind]       // host
	GPU          = ID[gpuKind]        // gpu
	JoinToken    = ID[joinTokenKind]  // join
	PriceBook    = ID[priceBookKind]  // pbk
	PriceVersion = ID[priceVerKind]   // ver
	Request      = ID[requestKind]    // req
	// RegistryLogin is a login of an image registry.
	RegistryLogin = ID[registryKind]  // reg
	SSHAuthority  = ID[authorityKind] // sshca
	Interruption  = ID[interruptKind] // intr
	Contract      = ID[contractKind]  // ctr
	Reservation   = ID[reservKind]    // rsv
	Grant         = ID[grantKind]     // grant
	Budget        = ID[budgetKind]    // bud
	Payment       = ID[paymentKind]   // pay
	Approval      = ID[approvalKind]  // apr
	Discrepancy   = ID[discrepKind]   // disc
	// PaymentAttempt is one intent to charge: an order to a payment provider.
	PaymentAttempt = ID[attemptKind]   // pat
	Dispute        = ID[disputeKind]   // dsp
	StatementLine  = ID[statementKind] // stl
)
