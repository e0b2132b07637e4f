package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tranche-cloud/tranche/nodeagent"
	"github.com/tranche-cloud/tranche/nodeagent/durable"
)

// stateFile is in the data folder: ailments outlive the agent, and those that a reboot
// does not cure the boot.
const stateFile = "health.json"

// state is the file.
type state struct {
	Version   int               `json:"version"`
	BootID    string            `json:"boot_id"`
	Condition string            `json:"condition,omitempty"`
	GPUs      map[string]record `json:"gpus"`
}

type record struct {
	Patient
	Told nodeagent.HealthState `json:"told"`
}

const stateVersion = 1

// load takes in what an earlier process knew. Another boot is a cure; whether it
// worked the first look will show.
func (m *Monitor) load(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var s state
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && s.Version != stateVersion {
		err = fmt.Errorf("version %d is not known, only %d", s.Version, stateVersion)
	}
	if err != nil {
		return fmt.Errorf("read gpu health %s (an unreadable file may be moved away; then every gpu is judged anew): %w", path, err)
	}
	m.condition = s.Condition
	for uuid, r := range s.GPUs {
		b := m.bed(uuid)
		b.Patient, b.told = r.Patient, r.Told
		if s.BootID == m.c.BootID {
			continue
		}
		b.Cured(ByReboot, m.c.Clock.Now())
		for i := range b.Ailments {
			b.Ailments[i].Since = 0 // of another boot's clock
		}
	}
	return nil
}

// save replaces the file. A failed write costs what a restart would have to find out
// again; the decisions stand. The caller holds m.mu.
func (m *Monitor) save() {
	if m.c.Dir == "" {
		return
	}
	s := state{Version: stateVersion, BootID: m.c.BootID, Condition: m.condition, GPUs: map[string]record{}}
	for uuid, b := range m.gpus {
		if len(b.Ailments) > 0 || b.Tries > 0 || b.told != nodeagent.Healthy {
			s.GPUs[uuid] = record{Patient: b.Patient, Told: b.told}
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil || string(text) == m.saved {
		return
	}
	if err := durable.Replace(filepath.Join(m.c.Dir, stateFile), text); err != nil {
		m.c.Log.Error("gpu health not written down", "error", err)
		return
	}
	m.saved = string(text)
}
