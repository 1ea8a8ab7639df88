//! The names of errors of certificates.

use std::borrow::Cow;

use baton_tls::{ERROR_NAMES, ERROR_PREFIX};

use super::Converter;
use crate::args::Value;
use crate::context::Context;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Converter] = &[Converter::new(
    "x509_v_err_str",
    Type::Int,
    Type::Str,
    name,
    "OpenSSL's name of the number of an error, such as X509_V_ERR_CERT_HAS_EXPIRED (as in HAProxy 3.0).",
)];

fn name<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    match usize::try_from(sample.into_int()?).ok()? {
        0 => Some(Sample::str(b"X509_V_OK")),
        number => {
            let name = ERROR_NAMES.get(number - 1)?;
            Some(Sample::Str(Cow::Owned([ERROR_PREFIX, name].concat().into_bytes())))
        }
    }
}
