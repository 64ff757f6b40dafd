-- Whose the rows of the outbox are, so that each tenant gets its turn: see `outbox_batch`.
ALTER TABLE outbox ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE outbox SET tenant = coalesce(
  (SELECT u.tenant FROM owners o JOIN users u ON u.user_id = o.user_id WHERE o.owner_id = outbox.owner_id), '');
CREATE INDEX outbox_by_tenant ON outbox (tenant, seq);
