package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tranche-cloud/tranche/client"
	"github.com/tranche-cloud/tranche/devstack/internal/market"
)

// Credentials is credentials.json: what a program needs to use the stack.
type Credentials struct {
	APIURL     string         `json:"api_url"`
	AdminToken string         `json:"admin_token"`
	Orgs       []market.Buyer `json:"orgs"`
}

// devOrgs are the organizations of a development stack.
var devOrgs = []string{"Acme", "Globex"}

// Furnish stocks the stack with offers, prices and two organizations, and writes
// credentials.json for them; a stack that has them keeps them.
func (s *Stack) Furnish(ctx context.Context) (Credentials, error) {
	path := filepath.Join(s.Dir, "credentials.json")
	text, err := os.ReadFile(path)
	if err == nil {
		var c Credentials
		if err := json.Unmarshal(text, &c); err != nil {
			return c, fmt.Errorf("read credentials.json: %w", err)
		}
		return c, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, fmt.Errorf("read credentials.json: %w", err)
	}
	admin := s.Admin()
	if err := market.Stock(ctx, admin); err != nil {
		return Credentials{}, err
	}
	c := Credentials{APIURL: s.URL(), AdminToken: s.admin}
	for _, name := range devOrgs {
		buyer, err := market.Enlist(ctx, admin, name, market.Terms{Quota: client.Quota{Instances: 100, Gpus: 100}})
		if err != nil {
			return Credentials{}, err
		}
		c.Orgs = append(c.Orgs, buyer)
	}
	if text, err = json.MarshalIndent(c, "", "  "); err != nil {
		return Credentials{}, err
	}
	return c, writeFile(path, append(text, '\n'))
}
