package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/devstack/internal/stack"
)

func clockCommand() *cobra.Command {
	var c stack.Config
	var scale int
	var jump time.Duration
	var to string
	cmd := &cobra.Command{
		Use:   "clock",
		Short: "Show or set the business clock of a running development stack",
		Long: "Business time is what billing counts. Only a stack that tranche-dev runs has a clock that can be set;\n" +
			"leases, tokens, rate limits and deadlines stay on real time.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			s, err := stack.Attach(ctx, c)
			if err != nil {
				return err
			}
			clock, err := s.Clock(ctx)
			if err != nil {
				return err
			}
			at := clock.Now.Add(jump)
			if to != "" {
				if at, err = time.Parse(time.RFC3339, to); err != nil {
					return fmt.Errorf("read --to: %w", err)
				}
			}
			if jump != 0 || to != "" {
				if clock, err = s.JumpTo(ctx, at); err != nil {
					return err
				}
			}
			if scale != 0 {
				if clock, err = s.SetScale(ctx, scale); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, %d× real time\n", clock.Now.Format(time.RFC3339), clock.Scale)
			return err
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", ".dev", "folder of the stack")
	cmd.Flags().StringVar(&c.BinDir, "bin-dir", binDir(), "folder of the binaries")
	cmd.Flags().IntVar(&scale, "scale", 0, "business seconds a real second, 1 to 100000")
	cmd.Flags().DurationVar(&jump, "jump", 0, "move business time forward by this much")
	cmd.Flags().StringVar(&to, "to", "", "move business time forward to this instant (RFC 3339)")
	cmd.MarkFlagsMutuallyExclusive("jump", "to")
	return cmd
}
