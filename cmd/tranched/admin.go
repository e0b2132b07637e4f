package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranche-cloud/tranche/internal/agentlink/ca"
	"github.com/tranche-cloud/tranche/internal/app"
	"github.com/tranche-cloud/tranche/internal/auth"
	"github.com/tranche-cloud/tranche/internal/clock"
	"github.com/tranche-cloud/tranche/migrations"
)

func migrateCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the database to this binary's schema", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.ownerDatabaseURL == "" {
				return &exitError{exitUsage, errors.New("--owner-database-url (TRANCHE_OWNER_DATABASE_URL) is missing")}
			}
			return migrations.Up(cmd.Context(), s.ownerDatabaseURL, s.logger("migrate"))
		},
	}
	cmd.Flags().StringVar(&s.ownerDatabaseURL, "owner-database-url", "", "Postgres as the role tranche_owner")
	return cmd
}

func adminCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "admin", Short: "Commands of the machine's operator"}
	onlyCommands(cmd)
	cmd.AddCommand(createOperatorCommand(), initKeysCommand())
	return cmd
}

func createOperatorCommand() *cobra.Command {
	s := &settings{}
	var name string
	cmd := &cobra.Command{
		Use: "create-operator", Short: "Make an operator's key and print it, once", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if name == "" {
				return &exitError{exitUsage, errors.New("--name is missing")}
			}
			pepper, err := auth.ReadKey(s.key("pepper"))
			if err != nil {
				return keyTrouble(err)
			}
			hasher, err := auth.NewHasher(pepper)
			if err != nil {
				return err
			}
			log := s.logger("admin")
			st, err := s.openStore(cmd.Context(), log)
			if err != nil {
				return err
			}
			defer st.Close()
			key, err := app.New(app.Deps{Store: st, Clock: clock.Real(), Hasher: hasher, Log: log}).CreateOperator(cmd.Context(), name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), key.Secret.Reveal())
			return err
		},
	}
	s.bindDatabase(cmd)
	s.bindKeys(cmd)
	cmd.Flags().StringVar(&name, "name", "", "who it is for")
	return cmd
}

func initKeysCommand() *cobra.Command {
	s := &settings{}
	cmd := &cobra.Command{
		Use: "init-keys", Short: "Make the secrets that are missing in --key-dir", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return initKeys(s) },
	}
	s.bindKeys(cmd)
	return cmd
}

// initKeys makes what is missing and never replaces anything.
func initKeys(s *settings) error {
	if err := os.MkdirAll(s.keyDir, 0o700); err != nil {
		return fmt.Errorf("make the key folder: %w", err)
	}
	for _, name := range []string{"pepper", "kek", "page"} {
		var secret [32]byte
		if _, err := rand.Read(secret[:]); err != nil {
			return fmt.Errorf("draw a secret: %w", err)
		}
		if err := writeNew(s.key(name), []byte(hex.EncodeToString(secret[:])+"\n")); err != nil {
			return err
		}
	}
	_, signing, err := ed25519.GenerateKey(nil)
	if err != nil {
		return fmt.Errorf("draw the signing key: %w", err)
	}
	text, err := auth.EncodeSigningKey(signing)
	if err != nil {
		return err
	}
	if err := writeNew(s.key("jwt.key"), text); err != nil {
		return err
	}
	return ca.Init(s.keyDir, time.Now())
}

// writeNew writes a file that only its owner may read, unless there is one.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make a key file: %w", err)
	}
	if _, err := f.Write(text); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Close()
}
