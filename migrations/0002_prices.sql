-- Prices: tiers, contracts, reservations, spot series.
-- +goose Up
select 1;
