package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/agent/preflight"
)

// errNotFit is the result of a preflight that found a failure.
var errNotFit = errors.New("this host is not fit for tenants' work: see the findings marked fail")

func preflightCommand() *cobra.Command {
	var driver driverFlags
	var o preflight.Options
	var output string
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Name what this host lacks, why it matters and how to get it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output must be table or json, not %q", output)
			}
			if o.Runtime != "containerd" && o.Runtime != "runc" {
				return fmt.Errorf("--runtime must be containerd or runc, not %q", o.Runtime)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			o.SMI, o.Simulated, o.DataDir = driver.smi, driver.driver == "sim", driver.dataDir
			if !o.Simulated {
				d, done, openErr := driver.open()
				if openErr == nil {
					defer func() { err = errors.Join(err, done()) }()
					o.GPUs = d
				}
				o.DriverError = openErr
			}
			facts := preflight.Gather(ctx, o)
			findings := preflight.Judge(facts)
			if err := printFindings(cmd.OutOrStdout(), output, facts, findings); err != nil {
				return err
			}
			if preflight.Failed(findings) {
				return errNotFit
			}
			return nil
		},
	}
	driver.register(cmd.Flags())
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "table", "table or json")
	f.BoolVar(&o.Shared, "shared", true, "GPUs of this host may carry slices of several holders")
	f.StringVar(&o.Runtime, "runtime", "containerd", "container runtime: containerd or runc")
	f.StringVar(&o.MPSControl, "mps-control", "", "absolute path of nvidia-cuda-mps-control (default: the usual places)")
	return cmd
}

func printFindings(w io.Writer, output string, facts preflight.Facts, findings []preflight.Finding) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			Findings []preflight.Finding `json:"findings"`
			Facts    preflight.Facts     `json:"facts"`
		}{findings, facts})
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		_, err := fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Level, f.Check, f.Have)
		if err == nil && f.Level != preflight.Pass {
			_, err = fmt.Fprintf(tw, "\t\twants %s\n\t\twhy: %s\n\t\tfix: %s\n", f.Want, f.Why, f.Fix)
		}
		if err != nil {
			return err
		}
	}
	return tw.Flush()
}
