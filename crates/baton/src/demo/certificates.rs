//! The certificate of the demo's frontend `secure`: replaced by another one again and again while there is load, each time by
//! nothing but a new file in its directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_prove::certificates::{Authority, CertificateSpec, Issued};
use baton_prove::stream::Verify;
use baton_prove::{Tls, TlsOptions};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use super::scene::DemoAddresses;

/// The time from one certificate to the next.
const EVERY: Duration = Duration::from_millis(700);
/// How often it is looked whether the new one is shown.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long that may take.
const SHOWN_MAX: Duration = Duration::from_secs(10);
/// How many times are kept.
const TIMES_KEPT_MAX: usize = 100_000;
/// Whose certificate it is.
const NAME: &str = "demo.example";
/// Files of the demo's directory.
const FOLDER: &str = "certificates";
const AUTHORITY: &str = "authority.pem";

/// Issues the certificates. Clones issue by the same authority.
#[derive(Clone, Debug)]
pub struct Certificates(Arc<Authority>);

/// What became of the replacements. The field names are the JSON's.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Replaced {
    /// Certificates that were shown after they had replaced another one.
    pub replaced: u64,
    /// Certificates that could not be written, or were not shown in time.
    pub failed: u64,
    /// Why, of the first one.
    pub failure: Option<String>,
    /// The median time from the file to the first handshake with it, in microseconds.
    pub shown_us: u64,
    /// The longest time.
    pub shown_us_max: u64,
}

impl Certificates {
    /// An authority of the demo's own.
    ///
    /// # Errors
    /// When a key cannot be made.
    pub fn new() -> io::Result<Certificates> {
        Authority::new("baton demo").map(Arc::new).map(Certificates)
    }

    /// Writes the authority and a first certificate into the demo's directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn place(&self, directory: &Path) -> io::Result<()> {
        let folder = directory.join(FOLDER);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(directory.join(AUTHORITY), self.0.root_pem())?;
        self.write(&folder).map(drop)
    }

    /// How clients speak TLS with the proxy: they check the certificate, and resume nothing.
    ///
    /// # Errors
    /// What the system says of the authority's file.
    pub fn tls(places: &DemoAddresses) -> io::Result<Tls> {
        let authority: PathBuf = places.certificates.with_file_name(AUTHORITY);
        let options = TlsOptions { name: Some(NAME.into()), verify: Verify::File(authority), ..TlsOptions::default() };
        TlsOptions { resumption: false, ..options }.build()
    }

    /// Puts a new certificate in place, whole at any moment.
    fn write(&self, folder: &Path) -> io::Result<Issued> {
        let issued = self.0.issue(&CertificateSpec::server([NAME]))?;
        // Aside: what is written half has no place in the directory.
        let aside = folder.with_file_name("next.pem");
        std::fs::write(&aside, issued.bundle_pem())?;
        std::fs::rename(&aside, folder.join(NAME).with_extension("pem"))?;
        Ok(issued)
    }

    /// Replaces the certificate again and again until `stop` is true; a replacement under way is waited for.
    pub async fn replace(self, places: DemoAddresses, mut stop: watch::Receiver<bool>) -> Replaced {
        let mut replaced = Replaced::default();
        let mut times: Vec<u64> = Vec::new();
        let mut beats = interval_at(tokio::time::Instant::now() + EVERY, EVERY);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                _ = beats.tick() => {}
            }
            match self.replace_once(&places).await {
                Ok(took) => {
                    replaced.replaced += 1;
                    if times.len() < TIMES_KEPT_MAX {
                        times.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                    }
                }
                Err(reason) => {
                    replaced.failed += 1;
                    replaced.failure.get_or_insert(reason);
                }
            }
        }
        times.sort_unstable();
        replaced.shown_us = times.get(times.len() / 2).copied().unwrap_or_default();
        replaced.shown_us_max = times.last().copied().unwrap_or_default();
        replaced
    }

    async fn replace_once(&self, places: &DemoAddresses) -> Result<Duration, String> {
        let tls = Certificates::tls(places).map_err(|error| error.to_string())?;
        let began = Instant::now();
        let wanted = self.write(&places.certificates).map_err(|error| format!("a certificate: {error}"))?;
        loop {
            let shown = tls.shown(places.secure).await.map_err(|error| format!("a handshake: {error}"))?;
            if shown == wanted.certificate.as_ref() {
                return Ok(began.elapsed());
            }
            if began.elapsed() > SHOWN_MAX {
                return Err(format!("the new certificate was not shown within {} s", SHOWN_MAX.as_secs()));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
