package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/tranche-cloud/tranche/billing/payment/stripe"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
)

// The files in --key-dir that make this installation one with card payments: the
// restricted API key, and the secret of the webhook endpoint.
const (
	stripeKeyFile     = "stripe.key"
	stripeWebhookFile = "stripe-webhook.key"
)

// paymentProviders opens the payment provider whose secrets are in the key folder;
// none when there are none, which is an installation paid by bank transfer.
func (s *settings) paymentProviders() ([]app.PaymentProvider, error) {
	key, err := s.optionalSecret(stripeKeyFile)
	if err != nil {
		return nil, err
	}
	webhook, err := s.optionalSecret(stripeWebhookFile)
	if err != nil {
		return nil, err
	}
	switch {
	case key.IsZero() && webhook.IsZero():
		return nil, nil
	case key.IsZero() || webhook.IsZero():
		return nil, &exitError{exitUsage, fmt.Errorf("%s has one of %s and %s: card payments need both", s.keyDir, stripeKeyFile, stripeWebhookFile)}
	}
	p, err := stripe.New(stripe.Config{Key: key, WebhookSecret: webhook, BaseURL: s.stripeURL, ReturnURL: s.paymentReturnURL})
	if err != nil {
		return nil, err
	}
	return []app.PaymentProvider{p}, nil
}

// optionalSecret reads a file of the key folder; the zero secret when there is none.
func (s *settings) optionalSecret(name string) (auth.Secret, error) {
	text, err := os.ReadFile(s.key(name))
	if errors.Is(err, fs.ErrNotExist) {
		return auth.Secret{}, nil
	} else if err != nil {
		return auth.Secret{}, &exitError{exitUsage, fmt.Errorf("reading a secret: %w", err)}
	}
	return auth.NewSecret(strings.TrimSpace(string(text))), nil
}
