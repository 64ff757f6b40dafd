-- What each owner and each tenant keeps, whatever its status: what a quota is compared with at every write. The counts follow the
-- rows: those of a tenant follow those of its owners.
ALTER TABLE records ADD COLUMN bytes INTEGER GENERATED ALWAYS AS (
  octet_length(content) + coalesce(octet_length(value), 0) + coalesce(octet_length(source_quote), 0)
    + coalesce(octet_length(topic), 0) + octet_length(tags) + octet_length(metadata)
) VIRTUAL;

ALTER TABLE owners ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE owners SET bytes = (SELECT coalesce(sum(r.bytes), 0) FROM records r WHERE r.owner_id = owners.owner_id);

CREATE TABLE tenants (
  tenant  TEXT PRIMARY KEY,
  records INTEGER NOT NULL,
  bytes   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO tenants (tenant, records, bytes)
  SELECT u.tenant, sum(o.records), sum(o.bytes) FROM owners o JOIN users u ON u.user_id = o.user_id GROUP BY u.tenant;

DROP TRIGGER record_added;
DROP TRIGGER record_removed;
CREATE TRIGGER record_added AFTER INSERT ON records BEGIN
  UPDATE owners SET records = records + 1, bytes = bytes + new.bytes WHERE owner_id = new.owner_id;
END;
CREATE TRIGGER record_removed AFTER DELETE ON records BEGIN
  UPDATE owners SET records = records - 1, bytes = bytes - old.bytes WHERE owner_id = old.owner_id;
END;
CREATE TRIGGER record_resized AFTER UPDATE OF source_quote, topic, tags, metadata ON records WHEN new.bytes <> old.bytes BEGIN
  UPDATE owners SET bytes = bytes + new.bytes - old.bytes WHERE owner_id = new.owner_id;
END;
CREATE TRIGGER tenant_counted AFTER UPDATE OF records, bytes ON owners BEGIN
  INSERT INTO tenants (tenant, records, bytes)
    SELECT u.tenant, new.records - old.records, new.bytes - old.bytes FROM users u WHERE u.user_id = new.user_id
    ON CONFLICT (tenant) DO UPDATE SET records = records + excluded.records, bytes = bytes + excluded.bytes;
END;
