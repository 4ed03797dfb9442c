// The certificates of one cluster: an authority of its own, the key that signs service accounts' tokens, and what is asked for.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const validFor = 10 * 365 * 24 * time.Hour

// A wish is one certificate to be signed by the cluster's authority.
type wish struct {
	Name          string   `json:"name"`
	CommonName    string   `json:"common_name"`
	Organizations []string `json:"organizations"`
	Hosts         []string `json:"hosts"`
}

// writeCertificates makes them all in the folder that is named by the only argument; the wishes are JSON on the input.
func writeCertificates(args []string, input io.Reader) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: certificates FOLDER < WISHES, got %d arguments", len(args))
	}
	folder := args[0]
	var wishes []wish
	if err := json.NewDecoder(input).Decode(&wishes); err != nil {
		return fmt.Errorf("the wishes on the input are not JSON: %w", err)
	}
	authority, authorityKey, err := writeAuthority(folder)
	if err != nil {
		return err
	}
	if err := writeTokenKeys(folder); err != nil {
		return err
	}
	for _, wanted := range wishes {
		if err := writeSigned(folder, wanted, authority, authorityKey); err != nil {
			return fmt.Errorf("certificate %s: %w", wanted.Name, err)
		}
	}
	return nil
}

func writeAuthority(folder string) (*x509.Certificate, crypto.Signer, error) {
	key, err := newKey(folder, "ca")
	if err != nil {
		return nil, nil, err
	}
	template, err := newTemplate("seatrial-cluster")
	if err != nil {
		return nil, nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	authority, err := x509.ParseCertificate(signed)
	if err != nil {
		return nil, nil, err
	}
	return authority, key, writePEM(filepath.Join(folder, "ca.crt"), "CERTIFICATE", signed, 0o644)
}

func writeTokenKeys(folder string) error {
	key, err := newKey(folder, "service-accounts")
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(folder, "service-accounts.pub"), "PUBLIC KEY", public, 0o644)
}

func writeSigned(folder string, wanted wish, authority *x509.Certificate, authorityKey crypto.Signer) error {
	key, err := newKey(folder, wanted.Name)
	if err != nil {
		return err
	}
	template, err := newTemplate(wanted.CommonName)
	if err != nil {
		return err
	}
	template.Subject.Organization = wanted.Organizations
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(wanted.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range wanted.Hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), authorityKey)
	if err != nil {
		return err
	}
	return writePEM(filepath.Join(folder, wanted.Name+".crt"), "CERTIFICATE", signed, 0o644)
}

func newTemplate(commonName string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		// A clock that is set back a little must not make them invalid.
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(validFor),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}, nil
}

func newKey(folder, name string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// "EC PRIVATE KEY" is the one form that all parts of Kubernetes read, also for signing tokens.
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(filepath.Join(folder, name+".key"), "EC PRIVATE KEY", encoded, 0o600)
}

func writePEM(path, kind string, content []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), mode)
}
