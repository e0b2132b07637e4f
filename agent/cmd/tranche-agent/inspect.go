package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/units"
	"github.com/tranche-cloud/tranche/nodeagent/gpudrv"
)

// readTimeout is how long reading a whole host may take.
const readTimeout = 2 * time.Minute

func inspectCommand() *cobra.Command {
	var driver driverFlags
	var output string
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Print the GPUs of this host and what they can be cut into",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output must be table or json, not %q", output)
			}
			d, done, err := driver.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, done()) }()
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			v, err := inspect(ctx, d)
			if err != nil {
				return err
			}
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(v)
			}
			return v.table(cmd.OutOrStdout())
		},
	}
	driver.register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// hostView is the output of inspect.
type hostView struct {
	Host gpudrv.Host `json:"host"`
	GPUs []gpuView   `json:"gpus"`
}

type gpuView struct {
	Index            int           `json:"index"`
	UUID             string        `json:"uuid"`
	PCI              string        `json:"pci"`
	Model            string        `json:"model"`
	Name             string        `json:"name"`
	Mode             gpu.Mode      `json:"mode"`
	Memory           units.MiB     `json:"memory_mib"`
	SMs              int           `json:"sm_count"`
	MemorySlices     int           `json:"memory_slices"`
	ComputeSlices    int           `json:"compute_slices"`
	States           int           `json:"states_of_use"`
	PlacementsSource string        `json:"placements_source"`
	Simulated        bool          `json:"simulated"`
	Profiles         []profileView `json:"profiles"`
}

type profileView struct {
	ID           int       `json:"id"`
	Name         string    `json:"name"`
	Compute      int       `json:"compute"`
	Memory       units.MiB `json:"memory_mib"`
	SMs          int       `json:"sm_count"`
	MaxInstances int       `json:"max_instances"`
	Copy         int       `json:"copy_engines"`
	Decode       int       `json:"decoders"`
	Encode       int       `json:"encoders"`
	JPEG         int       `json:"jpeg"`
	OFA          int       `json:"ofa"`
	Starts       []int     `json:"starts"`
	Size         int       `json:"size"`
}

func inspect(ctx context.Context, d gpudrv.Driver) (hostView, error) {
	h, err := d.Host(ctx)
	if err != nil {
		return hostView{}, fmt.Errorf("read host: %w", err)
	}
	found, err := gpudrv.Inventory(ctx, d)
	if err != nil {
		return hostView{}, err
	}
	v := hostView{Host: h, GPUs: make([]gpuView, 0, len(found))}
	for _, f := range found {
		g := viewGPU(f)
		if len(f.Device.Profiles) > 0 {
			table, err := gpu.GeometryOf(f.Device)
			if err != nil {
				return hostView{}, err
			}
			g.States = table.Len()
		}
		v.GPUs = append(v.GPUs, g)
	}
	return v, nil
}

func viewGPU(f gpudrv.Found) gpuView {
	d := f.Device
	v := gpuView{
		Index: f.Ref.Index, UUID: d.UUID, PCI: d.PCI, Model: d.Model, Name: d.Name, Mode: f.Mode,
		Memory: d.Memory, SMs: d.SMs, MemorySlices: d.MemorySlices, ComputeSlices: d.ComputeUnits,
		PlacementsSource: f.PlacementsSource, Simulated: d.Simulated, Profiles: []profileView{},
	}
	for _, p := range d.Profiles {
		row := profileView{
			ID: p.ID, Name: p.Name, Compute: p.Compute, Memory: p.Memory, SMs: p.SMs, MaxInstances: p.MaxInstances,
			Copy: p.Engines.Copy, Decode: p.Engines.Decode, Encode: p.Engines.Encode, JPEG: p.Engines.JPEG,
			OFA: p.Engines.OFA, Size: p.MemoryUnits,
		}
		for _, at := range p.Placements {
			row.Starts = append(row.Starts, at.Start)
		}
		v.Profiles = append(v.Profiles, row)
	}
	return v
}

func (v hostView) table(w io.Writer) error {
	simulated := ""
	if v.Host.Simulated {
		simulated = ", simulated: no real GPU answers"
	}
	_, err := fmt.Fprintf(w, "driver %s %s, CUDA %s, boot %s%s\n", v.Host.Driver, v.Host.DriverVersion,
		v.Host.CUDAVersion, v.Host.BootID, simulated)
	for _, g := range v.GPUs {
		err = errors.Join(err, g.table(w))
	}
	return err
}

func (g gpuView) table(w io.Writer) error {
	_, err := fmt.Fprintf(w, "\nGPU %d  %s  %s  %s  %s\n  mode %s, %d MiB, %d SMs", g.Index, g.Model, g.Name, g.UUID, g.PCI,
		g.Mode, int64(g.Memory), g.SMs)
	if err != nil || len(g.Profiles) == 0 {
		_, nl := fmt.Fprintln(w, ", no MIG")
		return errors.Join(err, nl)
	}
	_, err = fmt.Fprintf(w, ", %d memory and %d compute slices, %d states of use, placements from %s\n",
		g.MemorySlices, g.ComputeSlices, g.States, g.PlacementsSource)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, head := fmt.Fprintln(tw, "  ID\tPROFILE\tCOMPUTE\tMIB\tSMS\tMAX\tCOPY\tDEC\tENC\tJPEG\tOFA\tSTARTS:SIZE")
	err = errors.Join(err, head)
	for _, p := range g.Profiles {
		starts := make([]string, 0, len(p.Starts))
		for _, s := range p.Starts {
			starts = append(starts, strconv.Itoa(s))
		}
		_, row := fmt.Fprintf(tw, "  %d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s:%d\n", p.ID, p.Name, p.Compute,
			int64(p.Memory), p.SMs, p.MaxInstances, p.Copy, p.Decode, p.Encode, p.JPEG, p.OFA,
			strings.Join(starts, ","), p.Size)
		err = errors.Join(err, row)
	}
	return errors.Join(err, tw.Flush())
}
