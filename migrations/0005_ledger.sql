-- Ledger: accounts, wallets, grants, budgets, closed months.
-- +goose Up
select 1;
