-- Documents: issuers, taxes, credit notes, originals.
-- +goose Up
select 1;
