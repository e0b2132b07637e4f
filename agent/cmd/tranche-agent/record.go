package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

func recordCommand() *cobra.Command {
	var driver driverFlags
	var out string
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write every answer of the GPU driver to a file for the replay driver",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if out == "" {
				return errors.New("say --out FILE")
			}
			d, done, err := driver.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			rec, err := gpudrv.Record(ctx, d, time.Now())
			if err != nil {
				return err
			}
			if err := writeRecording(out, rec); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "recorded %d GPUs of driver %s in %s\n", len(rec.GPUs), rec.Host.Driver, out)
			return err
		},
	}
	driver.register(cmd.Flags())
	cmd.Flags().StringVar(&out, "out", "", "file to write")
	return cmd
}

// writeRecording replaces the file as a whole, after it has been read back.
func writeRecording(path string, rec gpudrv.Recording) error {
	text, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode recording: %w", err)
	}
	if _, err := gpudrv.ParseRecording(text); err != nil {
		return fmt.Errorf("read recording back: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".recording-*")
	if err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		const worldReadable = 0o644
		err = errors.Join(os.Chmod(f.Name(), worldReadable), os.Rename(f.Name(), path))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write recording: %w", err), os.Remove(f.Name()))
	}
	return nil
}
