#!/bin/sh
# Puts the root file system of the image together from what is on a Debian machine: the executable with the libraries it is
# linked to, certificates, the model, and nothing else. There is no shell in it.
#
#   deploy/rootfs.sh EXECUTABLE MODEL_DIR OUT
set -eu

executable=$1 model=$2 out=$3
mkdir -p "$out/usr/local/bin" "$out/usr/share/strata/models" "$out/etc/ssl/certs" "$out/var/lib/strata" "$out/var/lib/strata-erasures" "$out/tmp"
strip -o "$out/usr/local/bin/strata" "$executable"
chmod 755 "$out/usr/local/bin/strata"

# Lines of `name => /path (address)`, and the loader's own of `/path (address)`.
ldd "$executable" | sed -n 's|^[^/]*\(/[^ ]*\) (0x.*|\1|p' | while read -r library; do
    mkdir -p "$out$(dirname "$library")"
    cp -L "$library" "$out$library"
done

cp -RL "$model" "$out/usr/share/strata/models/use-multilingual-v3"
cp -L /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
cp "$(dirname "$0")/../LICENSE" "$out/usr/share/strata/"
echo "strata:x:10001:10001::/var/lib/strata:/nonexistent" > "$out/etc/passwd"
echo "strata:x:10001:" > "$out/etc/group"
echo "hosts: files dns" > "$out/etc/nsswitch.conf"
chmod 1777 "$out/tmp"
