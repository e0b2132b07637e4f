// Package org owns the tenant: an organization with its quota and rate limits, its
// projects and its API keys, as plain values.
//
// It does not own credentials and rights (internal/auth), usage against quota
// (internal/quota) or money (billing). Rates are requests a minute.
package org

import (
	"time"

	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/money"
	"github.com/tranche-cloud/tranche/internal/quota"
)

// RateLimits bound the requests of one credential, by class, a minute.
type RateLimits struct{ Read, Write, Launch int }

// devFactor is how much more a development organization may ask.
const devFactor = 10

// DefaultRateLimits are those of a new organization; of a development
// installation, where tests and benches share one address, ten times as many.
func DefaultRateLimits(dev bool) RateLimits {
	l := RateLimits{Read: 600, Write: 120, Launch: 60}
	if dev {
		l.Read, l.Write, l.Launch = l.Read*devFactor, l.Write*devFactor, l.Launch*devFactor
	}
	return l
}

// Organization is a tenant and billing account.
type Organization struct {
	ID        id.Org
	Name      string
	Currency  money.Currency
	Quota     quota.Limits
	Limits    RateLimits
	CreatedAt time.Time // business
}

// Project groups resources of an organization.
type Project struct {
	ID        id.Project
	Org       id.Org
	Name      string
	CreatedAt time.Time // business
}

// APIKey is a credential's record without its secret. Instants are machine time.
type APIKey struct {
	ID         id.Key
	Org        id.Org // zero for an operator's key
	Name       string
	Scopes     []string
	Project    id.Project // zero: all of the organization
	CreatedBy  string
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: never
	LastUsedAt *time.Time // at most a minute old
	RevokedAt  *time.Time
}
