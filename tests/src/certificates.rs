//! Certificates and keys of the servers, made anew for each start.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate authority of one test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The private key, PKCS#8 PEM.
    pub key: PathBuf,
}

impl Authority {
    /// Makes one (ECDSA P-256).
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "sunward tests");
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Its own certificate, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes `tls.crt` and `tls.key` of a server on loopback into `folder`, which it creates.
    pub fn serve_loopback(&self, folder: &Path, common_name: &str) -> Result<Identity> {
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        std::fs::create_dir_all(folder)?;
        let identity = Identity {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
        };
        write(&identity.certificate, &certificate)?;
        write(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

/// Writes a key pair, as service-account tokens are signed with: private and public PEM.
pub fn signing_key(folder: &Path) -> Result<Identity> {
    let key = KeyPair::generate()?;
    let pair = Identity {
        certificate: folder.join("service-account.pub"),
        key: folder.join("service-account.key"),
    };
    write(&pair.certificate, &key.public_key_pem())?;
    write(&pair.key, &key.serialize_pem())?;
    Ok(pair)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
