package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fleet answers for one GPU and the operation that changes its mode.
func fleet(sent *map[string]any, status string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/set-mode"):
			*sent = map[string]any{"if-match": r.Header.Get("If-Match")}
			if json.NewDecoder(r.Body).Decode(sent) != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if (*sent)["dry_run"] == true {
				_, _ = w.Write([]byte(`{"gpu":"gpu_1","from":"mig","to":"mps:4x25","instances":[{"id":"inst_1","organization":"org_1",
					"status":"running","price_per_hour":{"amount":"0.49","currency":"USD"}}],"offers_lost":[],"offers_gained":[
					{"offer":"h200-mps","slots":4,"price_per_hour":null}],
					"revenue":[{"currency":"USD","instances_per_hour":"0.49","before_per_hour":"3.43","after_per_hour":"0"}]}`))
				return
			}
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write([]byte(`{"id":"op_1","kind":"gpu.set_mode","status":"running","resource":"gpu_1"}`))
		case strings.HasPrefix(r.URL.Path, "/v1/admin/operations/"):
			_, _ = w.Write([]byte(status))
		default:
			_, _ = w.Write([]byte(`{"id":"gpu_1","generation":7,"mode":"mig"}`))
		}
	}
}

func TestSetModeActsOnTheGenerationItRead(t *testing.T) {
	t.Parallel()
	var sent map[string]any
	term := setup(t, fleet(&sent, `{"id":"op_1","status":"succeeded","kind":"gpu.set_mode"}`))
	require.Equal(t, exitOK, term.run(t.Context(), "gpu", "set-mode", "gpu_1", "mps:4x25", "--when-empty", "--wait"), term.err.String())
	require.Equal(t, map[string]any{"if-match": `"g7"`, "mode": "mps:4x25", "when_empty": true}, sent)

	require.Equal(t, exitOK, term.run(t.Context(), "gpu", "set-mode", "gpu_1", "mig", "--drain-by", "2h"))
	at, err := time.Parse(time.RFC3339Nano, sent["drain_by"].(string))
	require.NoError(t, err)
	require.InDelta(t, 2*time.Hour.Seconds(), time.Until(at).Seconds(), 60)
	require.Contains(t, term.err.String(), "cancel-set-mode gpu_1")
	require.Equal(t, exitUsage, term.run(t.Context(), "gpu", "set-mode", "gpu_1", "mig"))
	require.Equal(t, exitUsage, term.run(t.Context(), "gpu", "set-mode", "gpu_1", "mig", "--drain-by", "soon"))
}

func TestADryRunShowsWhomItConcerns(t *testing.T) {
	t.Parallel()
	var sent map[string]any
	term := setup(t, fleet(&sent, ""))
	require.Equal(t, exitOK, term.run(t.Context(), "gpu", "set-mode", "gpu_1", "mps:4x25", "--when-empty", "--dry-run"), term.err.String())
	for _, part := range []string{"inst_1", "0.49 USD/h", "4 × h200-mps", "now 3.43, then 0"} {
		require.Contains(t, term.out.String(), part)
	}
}

func TestAFailedSwitchSaysWhy(t *testing.T) {
	t.Parallel()
	var sent map[string]any
	term := setup(t, fleet(&sent, `{"id":"op_1","status":"failed","kind":"gpu.set_mode",
		"problem":{"code":"gpu.mode_failed","detail":"The daemon did not start.","suggestion":"Look."}}`))
	require.Equal(t, exitError, term.run(t.Context(), "gpu", "wait", "op_1"))
	require.Contains(t, term.err.String(), "The daemon did not start. Look.")
}

func TestAPasswordComesFromStandardInputAlone(t *testing.T) {
	t.Parallel()
	var sent map[string]string
	term := setup(t, func(w http.ResponseWriter, r *http.Request) {
		if json.NewDecoder(r.Body).Decode(&sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"reg_1","registry":"ghcr.io","username":"bot"}`))
	})
	term.stdin = "t0ken\n"
	args := []string{"registry-login", "create", "--registry", "ghcr.io", "--username", "bot"}
	require.Equal(t, exitUsage, term.run(t.Context(), args...))
	require.Equal(t, exitOK, term.run(t.Context(), append(args, "--password-stdin")...), term.err.String())
	require.Equal(t, "t0ken", sent["password"])
	require.NotContains(t, term.out.String()+term.err.String(), "t0ken")
	term.stdin = ""
	require.Equal(t, exitUsage, term.run(t.Context(), append(args, "--password-stdin")...))
}
