package auth

import (
	"maps"
	"slices"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
)

// Scope is one right of a credential.
type Scope string

// The scopes. An organization's key never holds the operator's.
const (
	OffersRead     Scope = "offers:read"
	InstancesRead  Scope = "instances:read"
	InstancesWrite Scope = "instances:write"
	UsageRead      Scope = "usage:read"
	InvoicesRead   Scope = "invoices:read"
	BillingRead    Scope = "billing:read"  // wallet, budgets, reservations, contracts, payments
	BillingWrite   Scope = "billing:write" // what commits money of the organization
	KeysRead       Scope = "api_keys:read"
	KeysWrite      Scope = "api_keys:write"
	OperatorRead   Scope = "operator:read"
	OperatorWrite  Scope = "operator:write"
)

// OrgScopes returns every scope an organization's key may hold.
func OrgScopes() []Scope {
	return []Scope{OffersRead, InstancesRead, InstancesWrite, UsageRead, InvoicesRead, BillingRead, BillingWrite, KeysRead, KeysWrite}
}

// OperatorScopes returns every scope an operator's key may hold.
func OperatorScopes() []Scope { return []Scope{OffersRead, OperatorRead, OperatorWrite} }

// Audience says whom an operation serves.
type Audience string

// The audiences.
const (
	Public       Audience = "public"   // no credential
	Anyone       Audience = "anyone"   // any credential
	ForOrg       Audience = "org"      // organizations
	ForOperators Audience = "operator" // operators
)

// Rule is one row of the policy.
type Rule struct {
	Audience Audience
	// Scope is the right that is needed; "" for none beyond the audience.
	Scope Scope
	// Named is true when the path names a resource. To a caller outside the
	// audience such an operation is 404, as a resource that does not exist.
	Named bool
	// KeyOnly refuses access tokens, so that none can prolong itself.
	KeyOnly bool
}

// policy has one row an operation; its key is the operationId. A test of the API
// fails when an operation lacks its row or its scope differs from the spec.
var policy = map[string]Rule{
	"getJwks":     {Audience: Public},
	"createToken": {Audience: Anyone, KeyOnly: true},
	"whoami":      {Audience: Anyone},
	"listOffers":  {Audience: Anyone, Scope: OffersRead},

	"createInstance": {Audience: ForOrg, Scope: InstancesWrite, Named: true},
	"listInstances":  {Audience: ForOrg, Scope: InstancesRead, Named: true},
	"getInstance":    {Audience: ForOrg, Scope: InstancesRead, Named: true},
	"deleteInstance": {Audience: ForOrg, Scope: InstancesWrite, Named: true},
	"startInstance":  {Audience: ForOrg, Scope: InstancesWrite, Named: true},
	"stopInstance":   {Audience: ForOrg, Scope: InstancesWrite, Named: true},
	"updateInstance": {Audience: ForOrg, Scope: InstancesWrite, Named: true},
	"listSamples":    {Audience: ForOrg, Scope: InstancesRead, Named: true},
	"listOperations": {Audience: ForOrg, Scope: InstancesRead, Named: true},
	"getOperation":   {Audience: ForOrg, Scope: InstancesRead, Named: true},

	"getUsage":       {Audience: ForOrg, Scope: UsageRead, Named: true},
	"previewInvoice": {Audience: ForOrg, Scope: InvoicesRead},
	"listInvoices":   {Audience: ForOrg, Scope: InvoicesRead},
	"getInvoice":     {Audience: ForOrg, Scope: InvoicesRead, Named: true},
	"getInvoiceHtml": {Audience: ForOrg, Scope: InvoicesRead, Named: true},

	"getInvoicePdf":       {Audience: ForOrg, Scope: InvoicesRead, Named: true},
	"getInvoiceCsv":       {Audience: ForOrg, Scope: InvoicesRead, Named: true},
	"getInvoiceJson":      {Audience: ForOrg, Scope: InvoicesRead, Named: true},
	"getInvoiceUbl":       {Audience: ForOrg, Scope: InvoicesRead, Named: true},
	"getInvoiceOriginal":  {Audience: ForOrg, Scope: InvoicesRead, Named: true},
	"listLineSegments":    {Audience: ForOrg, Scope: InvoicesRead, Named: true},
	"listInvoicePayments": {Audience: ForOrg, Scope: InvoicesRead, Named: true},

	"getOrganizationUsage": {Audience: ForOrg, Scope: UsageRead},
	"exportFocus":          {Audience: ForOrg, Scope: InvoicesRead},
	"listPayments":         {Audience: ForOrg, Scope: BillingRead},
	"setPaymentMethod":     {Audience: ForOrg, Scope: BillingWrite},
	"getBillingProfile":    {Audience: ForOrg, Scope: BillingRead},
	"putBillingProfile":    {Audience: ForOrg, Scope: BillingWrite},
	"getWallet":            {Audience: ForOrg, Scope: BillingRead},
	"listGrants":           {Audience: ForOrg, Scope: BillingRead},
	"getAutoTopUp":         {Audience: ForOrg, Scope: BillingRead},
	"putAutoTopUp":         {Audience: ForOrg, Scope: BillingWrite},
	"createTopUp":          {Audience: ForOrg, Scope: BillingWrite},
	"getTopUp":             {Audience: ForOrg, Scope: BillingRead, Named: true},
	"redeemCoupon":         {Audience: ForOrg, Scope: BillingWrite},
	"createBudget":         {Audience: ForOrg, Scope: BillingWrite},
	"listBudgets":          {Audience: ForOrg, Scope: BillingRead},
	"getBudget":            {Audience: ForOrg, Scope: BillingRead, Named: true},
	"updateBudget":         {Audience: ForOrg, Scope: BillingWrite, Named: true},
	"deleteBudget":         {Audience: ForOrg, Scope: BillingWrite, Named: true},

	// Authenticated by the provider's signature.
	"receivePaymentEvent": {Audience: Public, Named: true},

	"createReservation":  {Audience: ForOrg, Scope: BillingWrite},
	"listReservations":   {Audience: ForOrg, Scope: BillingRead},
	"getReservation":     {Audience: ForOrg, Scope: BillingRead, Named: true},
	"listContracts":      {Audience: ForOrg, Scope: BillingRead},
	"getContract":        {Audience: ForOrg, Scope: BillingRead, Named: true},
	"getPriceRules":      {Audience: ForOrg, Scope: OffersRead},
	"createPricePreview": {Audience: ForOrg, Scope: OffersRead, Named: true},
	"listSpotPrices":     {Audience: Anyone, Scope: OffersRead},

	"createApiKey": {Audience: ForOrg, Scope: KeysWrite},
	"listApiKeys":  {Audience: ForOrg, Scope: KeysRead},
	"revokeApiKey": {Audience: ForOrg, Scope: KeysWrite, Named: true},

	// Of shells it asks for InstancesWrite beside.
	"createSshCertificate": {Audience: ForOrg, Scope: InstancesRead, Named: true},

	"createRegistryLogin": {Audience: ForOrg, Scope: InstancesWrite},
	"listRegistryLogins":  {Audience: ForOrg, Scope: InstancesRead},
	"getRegistryLogin":    {Audience: ForOrg, Scope: InstancesRead, Named: true},
	"updateRegistryLogin": {Audience: ForOrg, Scope: InstancesWrite, Named: true},
	"deleteRegistryLogin": {Audience: ForOrg, Scope: InstancesWrite, Named: true},

	"createOrganization":       {Audience: ForOperators, Scope: OperatorWrite},
	"listOrganizations":        {Audience: ForOperators, Scope: OperatorRead},
	"getOrganization":          {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"createProject":            {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listProjects":             {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"getProject":               {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"createOrganizationApiKey": {Audience: ForOperators, Scope: OperatorWrite, Named: true},

	"createJoinToken": {Audience: ForOperators, Scope: OperatorWrite},
	"listJoinTokens":  {Audience: ForOperators, Scope: OperatorRead},
	"revokeJoinToken": {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listHosts":       {Audience: ForOperators, Scope: OperatorRead},
	"getHost":         {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"approveHost":     {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"cordonHost":      {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"uncordonHost":    {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listGpus":        {Audience: ForOperators, Scope: OperatorRead},

	"getGpu":            {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"setGpuMode":        {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"cancelGpuMode":     {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"getAdminOperation": {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"listAdminEvents":   {Audience: ForOperators, Scope: OperatorRead},

	"putOffer":           {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listAdminOffers":    {Audience: ForOperators, Scope: OperatorRead},
	"createPriceBook":    {Audience: ForOperators, Scope: OperatorWrite},
	"listPriceBooks":     {Audience: ForOperators, Scope: OperatorRead},
	"getPriceBook":       {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"createPriceVersion": {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"publishSpotPrice":   {Audience: ForOperators, Scope: OperatorWrite},
	"createInvoiceRun":   {Audience: ForOperators, Scope: OperatorWrite},
	"getInvoiceRun":      {Audience: ForOperators, Scope: OperatorRead, Named: true},

	"createContract":               {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listOrganizationContracts":    {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"getOrganizationContract":      {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"endContract":                  {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listOrganizationReservations": {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"endReservation":               {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"assignPriceBook":              {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listPriceBookAssignments":     {Audience: ForOperators, Scope: OperatorRead, Named: true},

	"getOrganizationBillingProfile": {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"putOrganizationBillingProfile": {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"checkTaxId":                    {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"recordTaxIdCheck":              {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"getOrganizationWallet":         {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"putMoneyMode":                  {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"createGrant":                   {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listOrganizationGrants":        {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"createPrepayment":              {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"createCoupon":                  {Audience: ForOperators, Scope: OperatorWrite},
	"listOrganizationPayments":      {Audience: ForOperators, Scope: OperatorRead, Named: true},

	"listIssuers":              {Audience: ForOperators, Scope: OperatorRead},
	"getIssuer":                {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"putIssuer":                {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"getTaxTable":              {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"putTaxTable":              {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listOrganizationInvoices": {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"getOrganizationInvoice":   {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"createCreditNote":         {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"cancelInvoice":            {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"reissueInvoice":           {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"createWriteOff":           {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"createRefund":             {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"importStatement":          {Audience: ForOperators, Scope: OperatorWrite},
	"listStatementLines":       {Audience: ForOperators, Scope: OperatorRead},
	"matchStatementLine":       {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"returnStatementLine":      {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"createFinanceClose":       {Audience: ForOperators, Scope: OperatorWrite},
	"getFinanceClose":          {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"getJournalCsv":            {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"listLedgerAccounts":       {Audience: ForOperators, Scope: OperatorRead},
	"listDiscrepancies":        {Audience: ForOperators, Scope: OperatorRead},
	"resolveDiscrepancy":       {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"checkInvoiceRun":          {Audience: ForOperators, Scope: OperatorWrite, Named: true},

	"listApprovals":     {Audience: ForOperators, Scope: OperatorRead},
	"getApproval":       {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"approveRequest":    {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"rejectRequest":     {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"listApprovalRules": {Audience: ForOperators, Scope: OperatorRead},
	"putApprovalRule":   {Audience: ForOperators, Scope: OperatorWrite, Named: true},

	"getOrganizationInvoiceHtml": {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"getOrganizationInvoicePdf":  {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"listStatementCandidates":    {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"getStarterTaxTable":         {Audience: ForOperators, Scope: OperatorRead},
	"getDunningSchedule":         {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"putDunningSchedule":         {Audience: ForOperators, Scope: OperatorWrite, Named: true},
	"getRevenueReport":           {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"getUtilisationReport":       {Audience: ForOperators, Scope: OperatorRead, Named: true},
	"createGpuCost":              {Audience: ForOperators, Scope: OperatorWrite},
}

// Policy returns a copy of the table.
func Policy() map[string]Rule { return maps.Clone(policy) }

// IsPublic reports whether the operation needs no credential.
func IsPublic(operationID string) bool { return policy[operationID].Audience == Public }

// Resource is what the path of a request names. A zero field is one that the
// path does not name.
type Resource struct {
	Org     id.Org
	Project id.Project
}

// Authorize returns nil when the principal may do the operation to the resource.
//
// It fails with resource.not_found for what the principal may not see, exactly
// as for what does not exist, and with auth.forbidden for what is visible and
// not allowed; visibility is judged first. An operation without a row is
// refused.
func Authorize(p Principal, operationID string, r Resource) error {
	rule, known := policy[operationID]
	if !known {
		return forbidden("This operation is not open to anyone.")
	}
	if rule.Audience == Public {
		return nil
	}
	if err := admit(p, rule); err != nil {
		return err
	}
	if !visible(p, r) {
		return NotFound()
	}
	if rule.KeyOnly && p.FromToken {
		return forbidden("A token cannot be exchanged for another.").Suggest("Send the API key itself.")
	}
	if rule.Scope != "" && !p.Has(rule.Scope) {
		return forbidden("The credential lacks the scope " + string(rule.Scope) + ".").
			Suggest("Use a key that holds this scope.")
	}
	return nil
}

// admit refuses a principal outside the operation's audience.
func admit(p Principal, rule Rule) error {
	want := map[Audience]PrincipalKind{ForOrg: Org, ForOperators: Operator}[rule.Audience]
	known := p.Kind == Org && !p.Org.IsZero() || p.Kind == Operator
	if known && (rule.Audience == Anyone || p.Kind == want) {
		return nil
	}
	if rule.Named {
		return NotFound()
	}
	return forbidden("This operation is for another kind of credential.").
		Suggest("Operators use operator keys under /v1/admin; organizations use their own keys elsewhere.")
}

// visible reports whether what the path names belongs to the principal.
func visible(p Principal, r Resource) bool {
	if p.Kind == Operator {
		return true
	}
	return (r.Org.IsZero() || r.Org == p.Org) && (r.Project.IsZero() || p.Sees(r.Project))
}

// CanGrant fails with auth.forbidden when the principal would hand out a scope
// or a project beyond its own. Projects nil means all of the organization.
func CanGrant(p Principal, scopes []Scope, projects []id.Project) error {
	for _, s := range scopes {
		if !p.Has(s) {
			return forbidden("A key cannot hold the scope " + string(s) + ", which its creator lacks.")
		}
	}
	if projects == nil && p.Projects != nil {
		return forbidden("A key cannot reach more projects than its creator.").
			Suggest("Name the project of the creator in the field project.")
	}
	if slices.ContainsFunc(projects, func(project id.Project) bool { return !p.Sees(project) }) {
		return NotFound()
	}
	return nil
}

// NotFound is the refusal of anything that does not exist or may not be seen. It
// never repeats the id that was asked for.
func NotFound() *fault.Error {
	return fault.New(fault.NotFound, "resource.not_found", "There is no such resource.").
		Suggest("Check the id and that the credential belongs to its organization and project.")
}

func forbidden(detail string) *fault.Error {
	return fault.New(fault.Forbidden, "auth.forbidden", detail)
}
