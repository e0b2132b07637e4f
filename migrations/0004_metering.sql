-- Metering: month seal, discrepancies, reconciliation.
-- +goose Up
select 1;
