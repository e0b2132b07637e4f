package api

import (
	"encoding/json"
	"net/http"
)

// Check is one part of readiness.
type Check struct {
	Name   string      `json:"name"`
	Status CheckStatus `json:"status"`
	Detail string      `json:"detail,omitempty"`
}

// CheckStatus is how a part is: only down takes the replica out of service.
type CheckStatus string

// The statuses of a check, from best to worst.
const (
	CheckOK       CheckStatus = "ok"
	CheckDegraded CheckStatus = "degraded"
	CheckDown     CheckStatus = "down"
)

// livez answers as long as the process can answer at all.
func (a *API) livez(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, http.StatusOK, CheckOK, nil)
}

// readyz answers 200 unless a part is down.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	checks := a.config.Ready(r.Context())
	worst, status := CheckOK, http.StatusOK
	for _, c := range checks {
		switch {
		case c.Status == CheckDown:
			worst, status = CheckDown, http.StatusServiceUnavailable
		case c.Status == CheckDegraded && worst == CheckOK:
			worst = CheckDegraded
		}
	}
	writeHealth(w, status, worst, checks)
}

func writeHealth(w http.ResponseWriter, status int, worst CheckStatus, checks []Check) {
	body, err := json.Marshal(struct {
		Status CheckStatus `json:"status"`
		Checks []Check     `json:"checks,omitempty"`
	}{worst, checks})
	if err != nil {
		status, body = http.StatusInternalServerError, nil // strings alone: cannot happen
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the prober is gone if this fails
}
