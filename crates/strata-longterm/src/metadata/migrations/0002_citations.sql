-- Which records of a recall were reported as cited, 16 bytes each: a second report of one recall counts nothing twice.
ALTER TABLE recalls ADD COLUMN cited BLOB NOT NULL DEFAULT x'';
