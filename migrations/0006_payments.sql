-- Payments: attempts, provider events, bank transfers, approvals.
-- +goose Up
select 1;
