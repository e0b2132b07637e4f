package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// service is a fake Tranche API: enough state for a provider to be wrong about.
type service struct {
	*httptest.Server
	mu        sync.Mutex
	instances map[string]map[string]any
	creates   int
	patches   int
	fate      func(n int) (status, code, detail string) // of the n-th created instance
	refuse    func(r *http.Request) (status int, code string)
}

func serve(t *testing.T) *service {
	s := &service{instances: map[string]map[string]any{}}
	s.fate = func(int) (string, string, string) { return "running", "", "" }
	s.refuse = func(*http.Request) (int, string) { return 0, "" }
	s.Server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Close)
	t.Setenv("TRANCHE_API_URL", s.URL)
	t.Setenv("TRANCHE_API_KEY", "trn_test_fake")
	return s
}

func (s *service) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status, code := s.refuse(r); status != 0 {
		problem(w, status, code, "Refused for the test.")
		return
	}
	rest, isInstance := strings.CutPrefix(r.URL.Path, "/v1/projects/")
	_, id, _ := strings.Cut(rest, "/instances")
	id = strings.TrimPrefix(id, "/")
	switch {
	case r.URL.Path == "/v1/offers":
		_, _ = w.Write([]byte(`{"items":[` + offer("h200-mig-1g-16gib", "mig") + `,` + offer("h100-whole", "whole") + `]}`))
	case !isInstance:
		problem(w, 404, "resource.not_found", "No such path.")
	case r.Method == http.MethodPost:
		s.create(w, r)
	case r.Method == http.MethodGet && id == "":
		s.list(w, r)
	case s.instances[id] == nil:
		problem(w, 404, "resource.not_found", "There is no such resource.")
	case r.Method == http.MethodDelete:
		s.instances[id]["status"], s.instances[id]["transitioning"] = "deleted", false
		answer(w, 202, s.instances[id])
	case r.Method == http.MethodPatch:
		var in map[string]any
		_ = json.NewDecoder(r.Body).Decode(&in)
		s.patches++
		s.instances[id]["ssh_keys"] = trimmed(in["ssh_keys"])
		answer(w, 200, s.instances[id])
	default:
		answer(w, 200, s.instances[id])
	}
}

// published fills in the protocol, as the service does.
func published(ports any) []any {
	all, _ := ports.([]any)
	out := []any{}
	for _, p := range all {
		one, _ := p.(map[string]any)
		out = append(out, map[string]any{"container_port": one["container_port"], "protocol": or(one["protocol"], "tcp")})
	}
	return out
}

func endpoints(ports any) []any {
	out := []any{map[string]any{"kind": "ssh", "protocol": "tcp", "host": "gpu-01", "port": 2222, "container_port": nil,
		"user": "inst", "host_key": "ssh-ed25519 AAAA"}}
	for n, p := range published(ports) {
		one, _ := p.(map[string]any)
		out = append(out, map[string]any{"kind": "port", "protocol": one["protocol"], "host": "gpu-01", "port": 30000 + n,
			"container_port": one["container_port"], "user": nil, "host_key": nil})
	}
	return out
}

func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var in map[string]any
	_ = json.NewDecoder(r.Body).Decode(&in)
	for _, i := range s.instances {
		if i["client_token"] == in["client_token"] {
			problem(w, 409, "state.conflict", "An instance was already created with that client_token.")
			return
		}
	}
	s.creates++
	id := fmt.Sprintf("inst_%026d", s.creates)
	status, code, detail := s.fate(s.creates)
	i := map[string]any{
		"id": id, "project": "proj_1", "name": or(in["name"], id[len(id)-8:]), "offer": in["offer"], "image": in["image"],
		"command": or(in["command"], []any{}), "labels": or(in["labels"], map[string]any{}), "env": envView(in["env"]),
		"ssh_keys": trimmed(in["ssh_keys"]), "ports": published(in["ports"]), "endpoints": endpoints(in["ports"]),
		"client_token": in["client_token"], "recovery": "stop", "status": status, "ready": status == "running",
		"transitioning": status == "placing", "generation": 1, "operation": nil, "gpus": []any{}, "billed": []any{}, "actions": []any{},
		"isolation":      map[string]any{"gpu": "partitioned", "host": "shared_kernel"},
		"price_per_hour": money("0.49"), "cost_so_far": money("0"), "simulated": true,
		"created_at": "2026-11-30T12:00:00.000000Z", "deleted_at": nil, "requested": nil, "sold": nil, "status_reason": nil,
	}
	if code != "" {
		i["status_reason"] = map[string]any{"code": code, "detail": detail}
	}
	s.instances[id] = i
	answer(w, 202, i)
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	items := []any{}
	for _, i := range s.instances {
		if token := r.URL.Query().Get("client_token"); token == "" || i["client_token"] == token {
			items = append(items, i)
		}
	}
	answer(w, 200, map[string]any{"items": items})
}

// live counts the instances that still bill.
func (s *service) live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, i := range s.instances {
		if i["status"] != "deleted" {
			n++
		}
	}
	return n
}

// removeAll deletes behind Terraform's back.
func (s *service) removeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.instances)
}

func envView(env any) []any {
	all, _ := env.([]any)
	views := []any{}
	for _, v := range all {
		views = append(views, map[string]any{"name": v.(map[string]any)["name"], "value": nil, "fingerprint": "sha:12345678"})
	}
	return views
}

func or(v, fallback any) any {
	if v == nil {
		return fallback
	}
	return v
}

func money(amount string) map[string]any { return map[string]any{"amount": amount, "currency": "USD"} }

func offer(id, mode string) string {
	return fmt.Sprintf(`{"id":%q,"gpu_model":"H200-141","mode":%q,"profile":null,"gpu_count":1,"memory_mib":16384,"sm_count":16,
		"sm_percent":null,"isolation":{"gpu":"partitioned","host":"shared_kernel"},"vcpu":4,"ram_mib":32768,"region":"local",
		"price_per_hour":{"amount":"0.49","currency":"USD"},"available":7,"simulated":true}`, id, mode)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func problem(w http.ResponseWriter, status int, code, detail string) {
	answer(w, status, map[string]any{"type": "t", "title": "T", "status": status, "detail": detail, "code": code,
		"instance": "urn:tranche:request:req_1", "request_id": "req_1", "retryable": false})
}

// trimmed gives keys in the form in which the service keeps them.
func trimmed(keys any) []any {
	all, _ := keys.([]any)
	out := []any{}
	for _, k := range all {
		text, _ := k.(string)
		out = append(out, strings.TrimSpace(text))
	}
	return out
}
