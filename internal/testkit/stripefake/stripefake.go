// Package stripefake is a stateful double of Stripe over HTTP: it keeps customers,
// payment intents, refunds and disputes, honours idempotency keys as Stripe does,
// signs events by the real scheme, and fails as it is told to. It owns what tests
// need to show retries, duplicates, lost answers and events out of order; it knows
// nothing of this product but what arrives at its door.
//
// What a card does is in the name of the payment method: see the Card constants.
// Amounts are provider units. It is safe for concurrent use.
package stripefake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The payment methods that are known.
const (
	CardOK           = "pm_card_visa"
	CardInsufficient = "pm_card_insufficient_funds" // declined, may be tried again
	CardStolen       = "pm_card_stolen"             // declined for good
	CardNeeds3DS     = "pm_card_authentication_required"
	CardSlow         = "pm_card_processing" // processing until Settle
)

// Op names what a fault is for.
type Op string

// The operations.
const (
	OpCustomer Op = "customer"
	OpCharge   Op = "charge"
	OpRead     Op = "read" // any GET of one charge or dispute
	OpFind     Op = "find" // any list
	OpRefund   Op = "refund"
)

// Fault is one failure: a status that is answered instead of doing anything, or with
// After once it was done; Silent gives no answer at all until the client gives up.
type Fault struct {
	Status int
	After  bool
	Silent bool
}

type object = map[string]any

// Server is one account.
type Server struct {
	URL    string
	Key    string
	Secret string

	mu       sync.Mutex
	ids      int
	faults   map[Op][]Fault
	answers  map[string]answer
	busy     map[string]bool
	intents  map[string]object
	order    []string // ids of intents, oldest first
	methods  map[string]string
	refunds  []object
	disputes map[string]object
	events   []Event
	requests map[Op]int
}

// answer is what an idempotency key was answered.
type answer struct {
	fingerprint string
	status      int
	body        []byte
}

// New starts an account that ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{
		Key: "rk_test_4242424242424242", Secret: "whsec_testtesttesttesttesttest", faults: map[Op][]Fault{}, answers: map[string]answer{},
		busy: map[string]bool{}, intents: map[string]object{}, methods: map[string]string{}, disputes: map[string]object{},
		requests: map[Op]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/customers", s.handle(OpCustomer, s.createCustomer))
	mux.HandleFunc("POST /v1/customers/{id}", s.handle(OpCustomer, s.updateCustomer))
	mux.HandleFunc("POST /v1/payment_methods/{id}/attach", s.handle(OpCustomer, s.attach))
	mux.HandleFunc("POST /v1/payment_intents", s.handle(OpCharge, s.createIntent))
	mux.HandleFunc("POST /v1/payment_intents/{id}/cancel", s.handle(OpCharge, s.cancelIntent))
	mux.HandleFunc("GET /v1/payment_intents/{id}", s.handle(OpRead, s.readIntent))
	mux.HandleFunc("GET /v1/payment_intents", s.handle(OpFind, s.listIntents))
	mux.HandleFunc("POST /v1/refunds", s.handle(OpRefund, s.createRefund))
	mux.HandleFunc("GET /v1/refunds", s.handle(OpFind, s.listRefunds))
	mux.HandleFunc("GET /v1/disputes/{id}", s.handle(OpRead, s.readDispute))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	s.URL = web.URL
	return s
}

// Script queues faults for an operation: each is used up by one request.
func (s *Server) Script(op Op, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[op] = append(s.faults[op], faults...)
}

// Requests counts the requests of an operation, refused ones too.
func (s *Server) Requests(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[op]
}

// Charged lists the intents that took money, oldest first, with what they took.
func (s *Server) Charged() (refs []string, units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.order {
		if s.intents[ref]["status"] == "succeeded" {
			refs = append(refs, ref)
			units += s.intents[ref]["amount_received"].(int64)
		}
	}
	return refs, units
}

// Fees is what was kept of all charges.
func (s *Server) Fees() (units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, intent := range s.intents {
		if intent["status"] == "succeeded" {
			units += fee(intent["amount_received"].(int64))
		}
	}
	return units
}

// Intents lists all intents, oldest first.
func (s *Server) Intents() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// refusal is an error as Stripe answers it.
type refusal struct {
	status int
	body   object
}

func refuse(status int, kind, code, message string) *refusal {
	return &refusal{status, object{"type": kind, "code": code, "message": message}}
}

// handle is the door: key, faults, idempotency.
func (s *Server) handle(op Op, do func(id string, form url.Values) (object, *refusal)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+s.Key {
			write(w, http.StatusUnauthorized, refuse(401, "invalid_request_error", "", "Invalid API Key provided").encoded())
			return
		}
		if err := r.ParseForm(); err != nil {
			write(w, http.StatusBadRequest, refuse(400, "invalid_request_error", "", err.Error()).encoded())
			return
		}
		fault := s.next(op)
		if fault != (Fault{}) && !fault.After {
			s.fail(w, r, fault)
			return
		}
		status, body := s.once(r, func() (object, *refusal) { return do(r.PathValue("id"), r.Form) })
		if fault.After {
			s.fail(w, r, fault)
			return
		}
		write(w, status, body)
	}
}

// next counts a request and takes its fault.
func (s *Server) next(op Op) (f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[op]++
	if len(s.faults[op]) > 0 {
		f, s.faults[op] = s.faults[op][0], s.faults[op][1:]
	}
	return f
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, f Fault) {
	switch {
	case f.Silent:
		<-r.Context().Done()
	case f.Status == http.StatusTooManyRequests:
		write(w, f.Status, refuse(f.Status, "invalid_request_error", "rate_limit", "Too many requests").encoded())
	case f.Status == http.StatusConflict:
		write(w, f.Status, refuse(f.Status, "invalid_request_error", "lock_timeout", "The object is locked").encoded())
	default:
		write(w, f.Status, refuse(f.Status, "api_error", "", "Something went wrong on our end").encoded())
	}
}

// once answers a key as it was answered before. The same key with other contents is
// refused, and so is one that is at work.
func (s *Server) once(r *http.Request, do func() (object, *refusal)) (int, []byte) {
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet || key == "" {
		return s.done(do)
	}
	fingerprint := r.URL.Path + "?" + r.Form.Encode()
	s.mu.Lock()
	known, ok := s.answers[key]
	working := s.busy[key]
	s.busy[key] = true
	s.mu.Unlock()
	switch {
	case ok && known.fingerprint != fingerprint:
		return http.StatusBadRequest, refuse(400, "idempotency_error", "",
			"Keys for idempotent requests can only be used with the same parameters they were first used with.").encoded()
	case ok:
		return known.status, known.body
	case working:
		return http.StatusConflict, refuse(409, "idempotency_error", "idempotency_key_in_use", "The key is in use").encoded()
	}
	status, body := s.done(do)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[key] = answer{fingerprint, status, body}
	return status, body
}

func (s *Server) done(do func() (object, *refusal)) (int, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, refused := do()
	if refused != nil {
		return refused.status, refused.encoded()
	}
	return http.StatusOK, encoded(out)
}

func (r *refusal) encoded() []byte { return encoded(object{"error": r.body}) }

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // objects of this package alone
	}
	return text
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", "req_fake")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// id makes the next id; the lock is held.
func (s *Server) id(prefix string) string {
	s.ids++
	return fmt.Sprintf("%s_%06d", prefix, s.ids)
}

// metadata reads metadata[x]=y.
func metadata(form url.Values) map[string]string {
	out := map[string]string{}
	for k, v := range form {
		if name, ok := strings.CutPrefix(k, "metadata["); ok {
			out[strings.TrimSuffix(name, "]")] = v[0]
		}
	}
	return out
}

func list(items []object) object {
	if items == nil {
		items = []object{}
	}
	return object{"object": "list", "data": items, "has_more": false}
}

func now() int64 { return time.Now().Unix() }
