package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/store"
)

// serveMetrics serves /metrics of the process's roles and /livez on an address of
// their own; failing to listen there fails the start.
func (p *process) serveMetrics(ctx context.Context, address string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		for _, m := range p.metrics {
			m.ServeHTTP(w, r)
		}
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		_, _ = fmt.Fprintf(w, "# TYPE go_goroutines gauge\ngo_goroutines %d\n", runtime.NumGoroutine())
		_, _ = fmt.Fprintf(w, "# TYPE go_memory_sys_bytes gauge\ngo_memory_sys_bytes %d\n", mem.Sys)
	})
	return p.serveHTTP(ctx, "metrics", &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second})
}

// workerMetrics tells how far the worker lags behind.
func workerMetrics(a *app.App) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		var age time.Duration
		err := a.Store.InSystem(ctx, "metrics", func(t *store.SystemTx) (err error) {
			age, err = t.OldestUnsent(ctx)
			return err
		})
		if err != nil {
			a.Log.Warn("the outbox's age cannot be read", "error", err)
			return
		}
		_, _ = fmt.Fprintf(w, "# TYPE tranche_outbox_oldest_seconds gauge\ntranche_outbox_oldest_seconds %.3f\n", age.Seconds())
	})
}
