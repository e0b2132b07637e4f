package client

import "github.com/tranche-cloud/tranche/openapi/wire"

// The shapes of the API, as openapi/openapi.yaml has them.
type (
	Identity                      = wire.Identity
	Offer                         = wire.Offer
	Instance                      = wire.Instance
	InstanceCreate                = wire.InstanceCreate
	InstanceStatus                = wire.InstanceStatus
	EnvVar                        = wire.EnvVar
	EnvVarView                    = wire.EnvVarView
	WaitStatus                    = wire.WaitStatus
	Operation                     = wire.Operation
	InstancePatch                 = wire.InstancePatch
	Endpoint                      = wire.Endpoint
	Port                          = wire.Port
	PortProtocol                  = wire.PortProtocol
	Recovery                      = wire.Recovery
	Interruption                  = wire.Interruption
	SSHCertificate                = wire.SshCertificate
	SSHCertificateCreate          = wire.SshCertificateCreate
	SSHPurpose                    = wire.SshPurpose
	Sample                        = wire.Sample
	RegistryLogin                 = wire.RegistryLogin
	RegistryLoginCreate           = wire.RegistryLoginCreate
	RegistryLoginPatch            = wire.RegistryLoginPatch
	UsageItem                     = wire.UsageItem
	Invoice                       = wire.Invoice
	InvoiceLine                   = wire.InvoiceLine
	InvoiceSummary                = wire.InvoiceSummary
	APIKey                        = wire.ApiKey
	APIKeyCreate                  = wire.ApiKeyCreate
	Organization                  = wire.Organization
	OrganizationCreate            = wire.OrganizationCreate
	Quota                         = wire.Quota
	RateLimits                    = wire.RateLimits
	Project                       = wire.Project
	Host                          = wire.Host
	GPU                           = wire.Gpu
	GPUModeChange                 = wire.GpuModeChange
	GPUModeEffect                 = wire.GpuModeEffect
	GPUOffer                      = wire.GpuOffer
	AdminOperation                = wire.AdminOperation
	Event                         = wire.Event
	JoinToken                     = wire.JoinToken
	JoinTokenCreate               = wire.JoinTokenCreate
	AdminOffer                    = wire.AdminOffer
	OfferPut                      = wire.OfferPut
	OfferPrice                    = wire.OfferPrice
	PriceBook                     = wire.PriceBook
	PriceBookCreate               = wire.PriceBookCreate
	PriceVersion                  = wire.PriceVersion
	PriceVersionCreate            = wire.PriceVersionCreate
	InvoiceRun                    = wire.InvoiceRun
	Money                         = wire.Money
	Price                         = wire.Price
	Bucket                        = wire.Bucket
	UsageGroup                    = wire.UsageGroup
	Timestamp                     = wire.Timestamp
	InvoiceKind                   = wire.InvoiceKind
	InvoiceStatus                 = wire.InvoiceStatus
	LineSegment                   = wire.LineSegment
	PaymentAttempt                = wire.PaymentAttempt
	Payment                       = wire.Payment
	BillingProfile                = wire.BillingProfile
	BillingProfilePut             = wire.BillingProfilePut
	OrganizationBillingProfilePut = wire.OrganizationBillingProfilePut
	Wallet                        = wire.Wallet
	Grant                         = wire.Grant
	AutoTopUp                     = wire.AutoTopUp
	AutoTopUpOrder                = wire.AutoTopUpOrder
	Budget                        = wire.Budget
	BudgetCreate                  = wire.BudgetCreate
	BudgetPatch                   = wire.BudgetPatch
	Reservation                   = wire.Reservation
	ReservationCreate             = wire.ReservationCreate
	Contract                      = wire.Contract
	ContractCreate                = wire.ContractCreate
	TermEnd                       = wire.TermEnd
	SpotPrice                     = wire.SpotPrice
	SpotPriceCreate               = wire.SpotPriceCreate
	PriceBookAssign               = wire.PriceBookAssign
	PriceBookAssignment           = wire.PriceBookAssignment
	Approval                      = wire.Approval
	ApprovalKind                  = wire.ApprovalKind
	ApprovalRule                  = wire.ApprovalRule
	MoneyInput                    = wire.MoneyInput
	MoneyMode                     = wire.MoneyMode
	GrantCreate                   = wire.GrantCreate
	PrepaymentCreate              = wire.PrepaymentCreate
	Coupon                        = wire.Coupon
	CouponCreate                  = wire.CouponCreate
	TaxIDCheck                    = wire.TaxIdCheck
	PriorityClass                 = wire.PriorityClass
	PriceRules                    = wire.PriceRules
	PriceRule                     = wire.PriceRule
	PricePreview                  = wire.PricePreview
	PricePreviewCreate            = wire.PricePreviewCreate
	PriceShape                    = wire.PriceShape
	Issuer                        = wire.Issuer
	IssuerPut                     = wire.IssuerPut
	TaxTable                      = wire.TaxTable
	TaxTablePut                   = wire.TaxTablePut
	CreditNoteCreate              = wire.CreditNoteCreate
	InvoiceCancel                 = wire.InvoiceCancel
	InvoiceCancelled              = wire.InvoiceCancelled
	InvoiceReissued               = wire.InvoiceReissued
	WriteOffCreate                = wire.WriteOffCreate
	RefundCreate                  = wire.RefundCreate
	StatementCreate               = wire.StatementCreate
	StatementImport               = wire.StatementImport
	StatementLine                 = wire.StatementLine
	StatementLineState            = wire.StatementLineState
	StatementMatch                = wire.StatementMatch
	FinanceClose                  = wire.FinanceClose
	LedgerAccount                 = wire.LedgerAccount
	RerateReport                  = wire.RerateReport
	Discrepancy                   = wire.Discrepancy
	DiscrepancyStatus             = wire.DiscrepancyStatus
	DiscrepancyResolve            = wire.DiscrepancyResolve
	TaxIDAnswer                   = wire.TaxIdAnswer
	RevenueReport                 = wire.RevenueReport
	UtilisationReport             = wire.UtilisationReport
	GPUCostCreate                 = wire.GpuCostCreate
	DunningSchedule               = wire.DunningSchedule
	DunningStep                   = wire.DunningStep
	StatementCandidate            = wire.StatementCandidate
)

// What an SSH certificate is for.
const (
	SSHShell = wire.SshPurposeShell
	SSHLogs  = wire.SshPurposeLogs
)

// What answers at an endpoint.
const (
	EndpointSSH  = wire.EndpointKindSsh
	EndpointPort = wire.EndpointKindPort
)
