package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/instance"
)

const (
	codeMalformed      = "request.malformed"
	codeUnknownField   = "request.unknown_field"
	codeInvalid        = "request.invalid"
	codeTooLarge       = "request.too_large"
	codeHeaderTooLarge = "request.header_too_large"
)

// problemDoc documents one problem code; docs/api/problems.md is made from it.
type problemDoc struct {
	kind      fault.Kind
	title     string
	meaning   string
	remedy    string // the suggestion where a failure brings none
	retryable bool   // the same request can succeed later without a change
}

// problemDocs is the table of every code the API answers with, and of those that an
// instance's status_reason and operation can carry.
var problemDocs = withRunCodes(map[string]problemDoc{
	"auth.missing": {fault.Unauthenticated, "No credential",
		"The request carries no credential.",
		"Send `Authorization: Bearer <API key or access token>`.", false},
	"auth.invalid": {fault.Unauthenticated, "Invalid credential",
		"The credential is malformed, unknown, forged or revoked.",
		"Check the key, or exchange it for a new access token.", false},
	"auth.expired": {fault.Unauthenticated, "Expired credential",
		"The credential was valid and has expired.",
		"Exchange the API key for a new access token, or create a new key.", false},
	"auth.forbidden": {fault.Forbidden, "Not allowed",
		"The credential is valid and lacks the right for this operation.",
		"Use a key with the scopes that the operation names.", false},
	"resource.not_found": {fault.NotFound, "Not found",
		"There is no such resource, or it is not visible to this credential.",
		"", false},
	codeMalformed: {fault.Invalid, "Malformed request",
		"The request cannot be read: not one JSON value, wrong content type, bad encoding or too deeply nested.",
		"Send one JSON object with `Content-Type: application/json`.", false},
	codeUnknownField: {fault.Invalid, "Unknown field",
		"The request names a field or parameter that does not exist (or is not built yet).",
		"Remove what `errors` names.", false},
	codeInvalid: {fault.Invalid, "Invalid request",
		"A field, parameter or header is missing, has the wrong type or is out of range.",
		"Correct what `errors` names.", false},
	codeTooLarge: {fault.TooLarge, "Body too large",
		"The body is larger than 1 MiB.",
		"Send a smaller body.", false},
	codeHeaderTooLarge: {fault.TooLarge, "Header too large",
		"The request line and headers together are larger than 16 KiB.",
		"Send fewer or shorter headers.", false},
	"idempotency.missing": {fault.Invalid, "Idempotency key missing",
		"A create needs an Idempotency-Key, so that a retry cannot create twice.",
		"Add the header `Idempotency-Key: <a fresh random value>` and repeat it on every retry.", false},
	"idempotency.mismatch": {fault.Unprocessable, "Idempotency key reused",
		"The Idempotency-Key was used with another body.",
		"Use a fresh key for a different request.", false},
	"idempotency.in_flight": {fault.Conflict, "Same request in flight",
		"A request with this Idempotency-Key is still at work.",
		"Repeat the same request after a moment.", true},
	"precondition.failed": {fault.PreconditionFailed, "Changed meanwhile",
		"If-Match names another generation than the resource has.",
		"Read the resource again and decide anew.", false},
	"precondition.required": {fault.PreconditionRequired, "If-Match required",
		"This operation needs If-Match, so that it cannot hit a state you have not seen.",
		"Read the resource and send its ETag as If-Match.", false},
	"state.conflict": {fault.Conflict, "Not possible in this state",
		"The resource is in a state that does not allow the operation.",
		"Read the resource; `actions` lists what is allowed now.", false},
	"name.taken": {fault.Conflict, "Name taken",
		"Another live resource has the name.",
		"Choose another name.", false},
	"offer.unknown": {fault.Unprocessable, "Unknown offer",
		"There is no offer of that name.",
		"List the offers.", false},
	"offer.unavailable": {fault.Unprocessable, "Offer unavailable",
		"The offer exists and no enabled GPU could ever hold it, or it has no price.",
		"Choose another offer.", false},
	"budget.exhausted": {fault.OverBudget, "Nothing left to spend",
		"The wallet, or a hard budget, does not cover what would start.",
		"Pay in, or raise the budget.", false},
	"billing.suspended": {fault.OverBudget, "Starts are held back",
		"An invoice is overdue; nothing new starts until it is paid. What runs goes on.",
		"Pay the invoice that the detail names.", false},
	"coupon.invalid": {fault.Unprocessable, "Invalid coupon",
		"There is no such code, or it has expired or is used up.",
		"Check the code.", false},
	"coupon.used": {fault.Conflict, "Coupon used",
		"The organization has redeemed the code before.",
		"", false},
	"document.not_en16931": {fault.Unprocessable, "Not an EN 16931 document",
		"The document has something that EN 16931 cannot say, such as a currency of three decimals.",
		"Use the PDF.", false},
	"issuer.unknown": {fault.Unprocessable, "Unknown issuer",
		"There is no issuer of that name.",
		"List the issuers.", false},
	"payment.method_missing": {fault.Conflict, "No payment method",
		"Nothing is stored that could be charged.",
		"Store a payment method, or pay by bank transfer.", false},
	"payment.refused": {fault.Unprocessable, "Refused by the payment provider",
		"The payment provider does not accept what was asked.",
		"Check what the detail names.", false},
	"payment.misconfigured": {fault.Unavailable, "No payment provider",
		"The installation has no payment provider, or it does not accept our key.",
		"Pay by bank transfer, or tell the operator.", false},
	"payment.unknown_outcome": {fault.Unavailable, "The payment provider does not answer",
		"It is not known whether the payment provider carried the order out.",
		"Repeat the same request; it is carried out once.", true},
	"tax_id.missing": {fault.Conflict, "No tax id",
		"The billing profile has no tax id.",
		"Put the tax id into the billing profile first.", false},
	"webhook.forged": {fault.Forbidden, "Wrong signature",
		"The signature of the event is missing or wrong.",
		"Check the signing secret of the endpoint.", false},
	"webhook.stale": {fault.Invalid, "Signed too long ago",
		"The event was signed too long ago; it may be a replay.",
		"Check the clock; the provider sends it again.", false},
	"webhook.mismatch": {fault.Conflict, "Event with other contents",
		"An event of this id came before with another body.",
		"", false},
	"webhook.malformed": {fault.Invalid, "Malformed event",
		"The event is signed and cannot be read.",
		"Check the API version of the endpoint.", false},
	"credit.exceeds": {fault.Conflict, "More than is left",
		"The credit is more than is left of the document, or of one of its lines.",
		"Credit at most what the detail says.", false},
	"credit.nothing": {fault.Conflict, "Nothing is left to credit",
		"The document was credited as a whole before.",
		"Read the document again.", false},
	"refund.required": {fault.Conflict, "What happens with the money?",
		"Money was paid on the document, and the request does not say what happens with it.",
		"Add refund: wallet, provider or none.", false},
	"issuer.not_in_force": {fault.Conflict, "Issuer not in force",
		"The first version of the issuer begins later.",
		"Wait, or use another issuer.", false},
	"issuer.prefix_taken": {fault.Conflict, "Prefix taken",
		"Another issuer numbers its documents with this prefix.",
		"Choose another prefix.", false},
	"issuer.prefix_fixed": {fault.Conflict, "The prefix stays",
		"Numbers of an issuer have one prefix for good.",
		"Send the prefix that the issuer has, or make another issuer.", false},
	"tax.no_rule": {fault.Conflict, "No tax rule",
		"The tax table has no rule for this sale. The document waits; tax is never guessed.",
		"Add a rule to the tax table of the issuer.", false},
	"tax.no_rate": {fault.Conflict, "No tax rate",
		"The tax table has no rate of the territory at the tax point.",
		"Add the rate to the tax table of the issuer.", false},
	"payment.exceeds_due": {fault.Unprocessable, "More than is owed",
		"The amount is more than the document is owed.",
		"Use at most what is owed.", false},
	"payment.currency": {fault.Unprocessable, "Another currency",
		"Money and document have different currencies.",
		"Use the currency of the document.", false},
	"payment.spent": {fault.Conflict, "Not enough is left",
		"Less than that is left of the payment.",
		"Ask for at most what is unapplied, or set reopen.", false},
	"statement.mismatch": {fault.Conflict, "Entry with other contents",
		"An entry of the statement was imported before with other contents. Nothing was imported.",
		"Compare it with the statement of the bank.", false},
	"approval.required": {fault.Forbidden, "A second operator has to approve",
		"The request is above the limit that one operator decides alone. It waits for another operator.",
		"Have another operator approve the request that the detail names, then send the very same request again.", false},
	"approval.self": {fault.Forbidden, "Own request",
		"Nobody approves a request of their own.",
		"Ask another operator.", false},
	"page_token.invalid": {fault.Invalid, "Invalid page token",
		"The page token is forged, or was issued for another filter or credential.",
		"Start the list again without page_token.", false},
	"quota.exceeded": {fault.OverQuota, "Quota exceeded",
		"The organization would hold more than its quota.",
		"Delete instances, or ask the operator for more.", false},
	"capacity.none": {fault.NoCapacity, "No capacity",
		"No GPU has room now. An instance's operation fails with this code.",
		"Try again later, or choose another offer.", true},
	"rate.limited": {fault.RateLimited, "Too many requests",
		"The credential or the project has used up its requests of this class.",
		"Wait as long as Retry-After says.", true},
	"service.unavailable": {fault.Unavailable, "Unavailable",
		"A part that is needed does not answer.",
		"Repeat the request; creates are safe to repeat with the same Idempotency-Key.", true},
	"internal": {fault.Internal, "Internal error",
		"Something went wrong on our side.",
		"Try again; if it persists, send us the request id.", true},
})

// withRunCodes adds the codes of runs that ended, or were refused by a host.
func withRunCodes(docs map[string]problemDoc) map[string]problemDoc {
	for _, c := range instance.Codes() {
		kind := fault.Unavailable
		if c.Tenant {
			kind = fault.Unprocessable
		}
		docs[c.Name] = problemDoc{
			kind, c.Title, c.Sentence + " An instance's status_reason, or its operation, carries this code.", c.Remedy, !c.Tenant,
		}
	}
	return docs
}

func invalid(code, detail string, fields ...fault.Field) *fault.Error {
	return fault.New(fault.Invalid, code, detail).With(fields...)
}

// ProblemCodes returns every code in alphabetical order.
func ProblemCodes() []string { return slices.Sorted(maps.Keys(problemDocs)) }

// ProblemDocs returns docs/api/problems.md, made from the table.
func ProblemDocs() string {
	var b strings.Builder
	b.WriteString(problemsHead)
	for _, code := range ProblemCodes() {
		doc := problemDocs[code]
		status := statusOf(fault.New(doc.kind, code, ""))
		again := "no"
		if doc.retryable {
			again = "yes"
		}
		fmt.Fprintf(&b, "\n## %s\n\n**%s.** HTTP %d, kind `%s`, retryable: %s.\n\n%s\n", code, doc.title, status, doc.kind, again, doc.meaning)
		if doc.remedy != "" {
			fmt.Fprintf(&b, "\nWhat to do: %s\n", doc.remedy)
		}
	}
	return b.String()
}

const problemsHead = `# Problems

<!-- Made from api/codes.go; UPDATE_GOLDEN=1 go test ./api -run TestProblemDocsAreCurrent writes it. -->

Every refusal is an RFC 9457 document, ` + "`application/problem+json`" + `:

| Field | Meaning |
|---|---|
| type | the address of the section below |
| title | the code in words |
| status | the HTTP status |
| detail | what happened, one sentence |
| instance | ` + "`urn:tranche:request:<request id>`" + ` |
| code | stable: programs branch on this |
| request_id | also the header X-Request-Id; quote it to the operator |
| retryable | whether the same request can succeed later without a change |
| retry_after_s | seconds to wait, also the header Retry-After |
| suggestion | what to do |
| errors | every refused part: pointer (JSON pointer, or name of a parameter or header), code, detail |

Checks come in this order: size of the headers, route, size of the body, credential (401),
rate limit (429), visibility (404), rights (403), shape (400), meaning (422), state (409),
precondition (412, 428). The operation's ` + "`x-error-codes`" + ` in the specification lists
the codes that it can answer. A method that a path does not take is 405 with code
` + "`request.invalid`" + ` and the header Allow.
`
