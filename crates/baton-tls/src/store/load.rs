//! Reads many certificates at once, with a thread for each CPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use baton_model::ExtraFiles;

use super::files::{Digest, FileKind, Files, Stamp, Stamps};
use super::wanted::{CertificateFiles, Listings, Recipe, with_suffix};
use super::{Note, Settings};
use crate::certificate::{Certificate, CertificateError, Chains, OcspError, Parts};

/// How many certificates a thread takes at a time.
const BATCH: usize = 64;
/// Fewer than this are read by one thread.
const FEW: usize = 128;

/// What was read of one recipe.
pub(crate) type Loaded = Result<(Arc<Certificate>, Digest, Option<Note>), CertificateError>;

/// What is in use already under a name.
pub(crate) type Known<'a> = dyn Fn(&Path) -> Option<(Arc<Certificate>, Digest)> + Sync + 'a;

/// What everything that is read has in common.
pub(crate) struct Loader<'a> {
    files: &'a dyn Files,
    chains: &'a Chains,
    settings: &'a Settings,
    listings: &'a Listings,
}

/// The memory of a thread that reads.
#[derive(Default)]
struct ReadBuffers {
    text: Vec<u8>,
    parts: Parts,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(
        files: &'a dyn Files,
        chains: &'a Chains,
        settings: &'a Settings,
        listings: &'a Listings,
    ) -> Loader<'a> {
        Loader { files, chains, settings, listings }
    }

    /// Reads all recipes; those for which `known` has a certificate of the same files are not read again.
    pub(crate) fn load_all(&self, recipes: &[Recipe], known: &Known<'_>) -> Vec<Loaded> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut desk = ReadBuffers::default();
            let mut done = Vec::new();
            loop {
                let from = next.fetch_add(BATCH, Ordering::Relaxed);
                let Some(batch) = recipes.get(from..(from + BATCH).min(recipes.len())) else { break };
                done.push((from, batch.iter().map(|recipe| self.load(recipe, known, &mut desk)).collect::<Vec<_>>()));
            }
            done
        };
        let mut done = if threads == 1 || recipes.len() < FEW {
            work()
        } else {
            std::thread::scope(|scope| {
                let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
                let mut done = work();
                for other in others {
                    done.extend(other.join().expect("reading certificates does not panic"));
                }
                done
            })
        };
        done.sort_unstable_by_key(|(from, _)| *from);
        done.into_iter().flat_map(|(_, batch)| batch).collect()
    }

    fn load(&self, recipe: &Recipe, known: &Known<'_>, desk: &mut ReadBuffers) -> Loaded {
        if let Some((certificate, digest)) = known(&recipe.name)
            && self.digest(recipe).is_some_and(|now| digest.is_same(now))
        {
            return Ok((certificate, digest, None));
        }
        let (certificate, digest, note) = self.read(recipe, desk)?;
        Ok((Arc::new(certificate), digest, note))
    }

    /// The paths of a recipe: the certificate's and those of its other parts, which may be missing unless they were asked for.
    fn paths<'b>(&self, recipe: &'b Recipe) -> (&'b Path, impl Iterator<Item = ExtraFile>) {
        let crt = match &recipe.places {
            CertificateFiles::Beside => recipe.name.as_path(),
            CertificateFiles::Load(load) => load.crt.as_path(),
        };
        let ExtraFiles { sctl, ocsp, issuer, key, .. } = self.settings.extra;
        let kinds = [
            (ExtraPart::Key, key),
            (ExtraPart::Ocsp, ocsp),
            (ExtraPart::Issuer, issuer),
            (ExtraPart::Timestamps, sctl),
        ];
        let stem = match crt.extension() {
            Some(extension) if self.settings.extra.replace_extension && extension == "crt" => {
                Some(crt.with_extension(""))
            }
            _ => None,
        };
        let extras = kinds.into_iter().filter_map(move |(part, automatic)| {
            let named = match &recipe.places {
                CertificateFiles::Beside => None,
                CertificateFiles::Load(load) => match part {
                    ExtraPart::Key => load.key.clone(),
                    ExtraPart::Issuer => load.issuer.clone(),
                    ExtraPart::Ocsp => load.ocsp.clone(),
                    ExtraPart::Timestamps => load.sctl.clone(),
                },
            };
            match named {
                Some(path) => Some(ExtraFile { part, path, required: true }),
                None if automatic => {
                    let path = with_suffix(stem.as_deref().unwrap_or(crt), part.suffix());
                    self.listings.may_have(&path).then_some(ExtraFile { part, path, required: false })
                }
                None => None,
            }
        });
        (crt, extras)
    }

    fn stamp(&self, path: &Path) -> Option<Stamp> {
        match self.files.find(path) {
            Ok(FileKind::File(stamp)) => Some(stamp),
            Ok(FileKind::Directory | FileKind::Other) | Err(_) => None,
        }
    }

    /// What the files look like now; `None` when one cannot be asked.
    fn digest(&self, recipe: &Recipe) -> Option<Digest> {
        let (crt, extras) = self.paths(recipe);
        let mut stamps = Stamps::new();
        stamps.add_number(self.settings.issuers.fingerprint);
        stamps.add(crt, Some(self.stamp(crt)?));
        for extra in extras {
            if let Some(found) = self.stamp(&extra.path) {
                stamps.add(&extra.path, Some(found));
            }
        }
        Some(stamps.digest(i64::MAX))
    }

    fn read(
        &self,
        recipe: &Recipe,
        desk: &mut ReadBuffers,
    ) -> Result<(Certificate, Digest, Option<Note>), CertificateError> {
        let now_ns = now_ns();
        let mut stamps = Stamps::new();
        stamps.add_number(self.settings.issuers.fingerprint);
        let ReadBuffers { text, parts } = desk;
        parts.clear();
        let (crt, extras) = self.paths(recipe);
        let stamp = self.files.read(crt, text).map_err(|error| CertificateError::file(None, &error))?;
        stamps.add(crt, Some(stamp));
        parts.read_bundle(text, self.chains)?;
        self.settings.issuers.complete(parts);
        let (mut staples, mut note) = (None, None);
        for extra in extras {
            let is_needed = extra.required
                || match extra.part {
                    ExtraPart::Key => !parts.has_key(),
                    // It is for OCSP alone.
                    ExtraPart::Issuer => staples.is_some() && !parts.has_issuer(),
                    ExtraPart::Ocsp | ExtraPart::Timestamps => true,
                };
            if !is_needed {
                if let Some(stamp) = self.stamp(&extra.path) {
                    stamps.add(&extra.path, Some(stamp));
                }
                continue;
            }
            match self.files.read(&extra.path, text) {
                Ok(stamp) => stamps.add(&extra.path, Some(stamp)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !extra.required => continue,
                Err(error) => return Err(CertificateError::file(Some(extra.path.display().to_string()), &error)),
            }
            match extra.part {
                ExtraPart::Key => parts.read_key(text)?,
                ExtraPart::Ocsp => {
                    note = parts.set_ocsp(text).err().map(|fault| unusable(recipe, &extra.path, fault));
                    staples = Some(extra.path);
                }
                ExtraPart::Issuer => parts.read_issuer(text, self.chains)?,
                ExtraPart::Timestamps => parts.set_timestamps(text)?,
            }
        }
        if staples.is_some() && !parts.has_issuer() {
            return Err(CertificateError::NoIssuer);
        }
        let certificate = parts.build(self.chains)?;
        if let (Some(path), Err(fault)) = (staples, certificate.check_ocsp(now_ns / 1_000_000_000)) {
            certificate.set_ocsp(None);
            note = Some(unusable(recipe, &path, fault));
        }
        Ok((certificate, stamps.digest(now_ns), note))
    }

    /// Reads one certificate, whatever is known of it.
    pub(crate) fn judge(&self, recipe: &Recipe) -> Result<(Certificate, Digest, Option<Note>), CertificateError> {
        self.read(recipe, &mut ReadBuffers::default())
    }
}

/// Says why an OCSP response is not stapled.
fn unusable(recipe: &Recipe, path: &Path, fault: OcspError) -> Note {
    Note { source: Some(recipe.source.clone()), path: path.into(), text: format!("{fault}: it is not stapled") }
}

/// Nanoseconds since 1970.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A file beside a certificate's.
struct ExtraFile {
    part: ExtraPart,
    path: PathBuf,
    /// It is named by the configuration.
    required: bool,
}

#[derive(Clone, Copy)]
enum ExtraPart {
    Key,
    Issuer,
    Ocsp,
    Timestamps,
}

impl ExtraPart {
    fn suffix(self) -> &'static str {
        match self {
            ExtraPart::Key => "key",
            ExtraPart::Issuer => "issuer",
            ExtraPart::Ocsp => "ocsp",
            ExtraPart::Timestamps => "sctl",
        }
    }
}
