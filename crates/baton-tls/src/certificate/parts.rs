//! The parts of a certificate, as files or an operator bring them, before they are judged together.

use std::fmt;
use std::sync::Arc;

use super::chain::Chains;
use super::describe::{Description, chain_of};
use super::fault::CertificateError;
use super::key::KeyEncoding;
use super::ocsp::{OcspError, OcspResponse};
use super::pem::{self, Blocks};
use super::{Certificate, MAX_CHAIN};

/// What a certificate is made of. Each part may come from a file of its own; [`Parts::build`] judges them together.
#[derive(Clone, Default)]
pub struct Parts {
    /// The certificate itself, in DER; empty: missing.
    pub(crate) leaf: Vec<u8>,
    /// Its private key, in DER.
    pub(crate) key: Vec<u8>,
    /// What the key is wrapped in; `None`: there is no key.
    pub(crate) form: Option<KeyEncoding>,
    /// The issuers that are sent with it.
    pub(crate) chain: Vec<Arc<[u8]>>,
    /// The issuer that is not sent: for OCSP.
    pub(crate) issuer: Option<Arc<[u8]>>,
    /// An OCSP response in DER.
    pub(crate) ocsp: Option<Vec<u8>>,
    /// A list of signed certificate timestamps (RFC 6962 3.3).
    pub(crate) sctl: Option<Vec<u8>>,
}

/// Without the key, so that it is never logged.
impl fmt::Debug for Parts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = (self.leaf.len(), self.chain.len(), self.form.is_some());
        write!(out, "Parts({} bytes, {} issuers, with a key: {})", lengths.0, lengths.1, lengths.2)
    }
}

impl Parts {
    /// The parts of a certificate that is in use.
    pub fn of(certificate: &Certificate) -> Parts {
        let (form, key) = certificate.key_der();
        Parts {
            leaf: certificate.der().to_vec(),
            key,
            form: Some(form),
            chain: certificate.chain().to_vec(),
            issuer: certificate.extras.as_ref().and_then(|extras| extras.issuer.clone()),
            ocsp: certificate.ocsp().map(|ocsp| ocsp.to_vec()),
            sctl: certificate.extras.as_ref().and_then(|extras| extras.sctl.clone()),
        }
    }

    /// Forgets everything, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        let (mut leaf, mut key, mut chain) =
            (std::mem::take(&mut self.leaf), std::mem::take(&mut self.key), std::mem::take(&mut self.chain));
        leaf.clear();
        key.clear();
        chain.clear();
        *self = Parts { leaf, key, chain, ..Parts::default() };
    }

    /// Takes certificate, issuers and key from a PEM text; the key only if it has one. Other blocks, such as DH parameters,
    /// are skipped: Baton needs none.
    ///
    /// # Errors
    /// When the text cannot be read; the parts are then of no use.
    pub fn read_bundle(&mut self, text: &[u8], chains: &Chains) -> Result<(), CertificateError> {
        if text.trim_ascii().is_empty() {
            return Err(CertificateError::Empty);
        }
        self.leaf.clear();
        self.chain.clear();
        let mut der = Vec::new();
        let mut has_key = false;
        for block in Blocks::new(text) {
            let block = block.map_err(|(at, fault)| CertificateError::pem(pem::line_of(text, at), fault))?;
            let fault = |fault| CertificateError::pem(pem::line_of(text, block.start), fault);
            match block.label {
                b"CERTIFICATE" | b"X509 CERTIFICATE" | b"TRUSTED CERTIFICATE" if self.leaf.is_empty() => {
                    pem::decode(block.body, &mut self.leaf).map_err(fault)?;
                    if self.leaf.is_empty() {
                        return Err(CertificateError::Certificate(1));
                    }
                }
                b"CERTIFICATE" | b"X509 CERTIFICATE" | b"TRUSTED CERTIFICATE" => {
                    if self.chain.len() >= MAX_CHAIN {
                        return Err(CertificateError::Long);
                    }
                    der.clear();
                    pem::decode(block.body, &mut der).map_err(fault)?;
                    let position = self.chain.len() + 2;
                    self.chain.push(chains.certificate(&der).ok_or(CertificateError::Certificate(position))?);
                }
                _ if !has_key => has_key = self.read_key_block(text, &block)?,
                _ => {}
            }
        }
        if self.leaf.is_empty() { Err(CertificateError::NoCertificate) } else { Ok(()) }
    }

    /// Takes another certificate, its issuers and its key from a PEM text; without one there is no key then. The parts that have
    /// files of their own stay.
    ///
    /// # Errors
    /// When the text cannot be read; nothing changes then.
    pub fn replace_bundle(&mut self, text: &[u8], chains: &Chains) -> Result<(), CertificateError> {
        let (issuer, ocsp, sctl) = (self.issuer.clone(), self.ocsp.clone(), self.sctl.clone());
        let mut other = Parts { issuer, ocsp, sctl, ..Parts::default() };
        other.read_bundle(text, chains)?;
        *self = other;
        Ok(())
    }

    /// What the certificate says, if there is one that can be read.
    pub fn describe(&self) -> Option<Description> {
        let mut described = Description::of(&self.leaf)?;
        described.chain = chain_of(&self.chain);
        Some(described)
    }

    /// Takes the private key from a PEM text (`.key`).
    ///
    /// # Errors
    /// When there is none.
    pub fn read_key(&mut self, text: &[u8]) -> Result<(), CertificateError> {
        for block in Blocks::new(text) {
            let block = block.map_err(|(at, fault)| CertificateError::pem(pem::line_of(text, at), fault))?;
            if self.read_key_block(text, &block)? {
                return Ok(());
            }
        }
        Err(CertificateError::NoKey)
    }

    /// Whether `block` was a key.
    fn read_key_block(&mut self, text: &[u8], block: &pem::Block<'_>) -> Result<bool, CertificateError> {
        if block.label == b"ENCRYPTED PRIVATE KEY" {
            return Err(CertificateError::Encrypted);
        }
        if block.label == b"DSA PRIVATE KEY" {
            return Err(CertificateError::Kind);
        }
        let Some(form) = KeyEncoding::of(block.label) else { return Ok(false) };
        if block.encrypted {
            return Err(CertificateError::Encrypted);
        }
        self.key.clear();
        let fault = |fault| CertificateError::pem(pem::line_of(text, block.start), fault);
        pem::decode(block.body, &mut self.key).map_err(fault)?;
        self.form = Some(form);
        Ok(true)
    }

    /// Whether a private key is among the parts.
    pub fn has_key(&self) -> bool {
        self.form.is_some()
    }

    /// Takes the issuer's certificate from a PEM text (`.issuer`).
    ///
    /// # Errors
    /// When there is none.
    pub fn read_issuer(&mut self, text: &[u8], chains: &Chains) -> Result<(), CertificateError> {
        let mut blocks = Blocks::new(text).filter_map(Result::ok);
        let block = blocks.find(|block| block.label == b"CERTIFICATE").ok_or(CertificateError::Issuer)?;
        let mut der = Vec::new();
        pem::decode(block.body, &mut der).map_err(|_| CertificateError::Issuer)?;
        self.issuer = Some(chains.certificate(&der).ok_or(CertificateError::Issuer)?);
        Ok(())
    }

    /// Takes an OCSP response in DER (`.ocsp`, RFC 6960 4.2.1). Whether it is of the certificate and for now,
    /// [`Certificate::check_ocsp`] says.
    ///
    /// # Errors
    /// When it cannot be read or says nothing; none is stapled then.
    pub fn set_ocsp(&mut self, response: &[u8]) -> Result<(), OcspError> {
        self.ocsp = None;
        OcspResponse::read(response)?;
        self.ocsp = Some(response.to_vec());
        Ok(())
    }

    /// Whether the certificate's issuer is among the parts.
    pub(crate) fn has_issuer(&self) -> bool {
        self.issuer.is_some() || !self.chain.is_empty()
    }

    /// Takes a list of signed certificate timestamps (`.sctl`).
    ///
    /// # Errors
    /// When it is none.
    pub fn set_timestamps(&mut self, list: &[u8]) -> Result<(), CertificateError> {
        self.sctl = Some(check_timestamps(list).ok_or(CertificateError::Timestamps)?.to_vec());
        Ok(())
    }

    /// Judges the parts together: the certificate can be read, and the key is its own.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn build(&self, chains: &Chains) -> Result<Certificate, CertificateError> {
        Certificate::build(self, chains)
    }
}

/// RFC 6962 3.3: a list of lists, each with its length before it.
fn check_timestamps(list: &[u8]) -> Option<&[u8]> {
    let (length, mut rest) = list.split_first_chunk::<2>()?;
    if usize::from(u16::from_be_bytes(*length)) != rest.len() || rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_be_bytes(*length)).max(1)..)?;
    }
    Some(list)
}
