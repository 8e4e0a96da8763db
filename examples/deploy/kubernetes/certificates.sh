#!/bin/sh
# Certificates for trying out: an authority, the members of etcd (etcd.yaml) and one client (worker.yaml), valid for a year.
#   sh certificates.sh FOLDER [MORE NAMES OF THE MEMBERS, as IP:127.0.0.1 or DNS:localhost]
#   kubectl create secret generic etcd-tls --from-file=ca.pem=FOLDER/ca.pem \
#     --from-file=server.pem=FOLDER/server.pem --from-file=server-key.pem=FOLDER/server-key.pem
#   kubectl create secret generic worker-tls --from-file=ca.pem=FOLDER/ca.pem \
#     --from-file=client.pem=FOLDER/client.pem --from-file=client-key.pem=FOLDER/client-key.pem
set -eu
umask 077
folder=${1:?"usage: sh certificates.sh FOLDER [NAME...]"}
shift
mkdir -p "$folder"
cd "$folder"

names=DNS:etcd,DNS:etcd-0.etcd,DNS:etcd-1.etcd,DNS:etcd-2.etcd
for name in "$@"; do names=$names,$name; done

key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -days 365 -subj /CN=etcd-ca -keyout ca-key.pem -out ca.pem

issue() { # NAME COMMON-NAME EXTENSIONS
  openssl req $key -subj "/CN=$2" -keyout "$1-key.pem" -out "$1.csr"
  printf '%s\n' "$3" > "$1.cnf"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 365 -extfile "$1.cnf" -out "$1.pem"
  rm "$1.csr" "$1.cnf"
}
# A member is a client of the other members, too.
issue server etcd "subjectAltName=$names
extendedKeyUsage=serverAuth,clientAuth"
issue client worker "extendedKeyUsage=clientAuth"
