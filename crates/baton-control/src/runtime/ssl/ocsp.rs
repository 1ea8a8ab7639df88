//! `show` and `set ssl ocsp-response`.

use baton_tls::{OcspError, OcspResponse};

use super::super::altering::{Altering, Staging};
use super::certificate::decode;
use crate::control::Control;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::reload::Change;

/// Why certificates are revoked (RFC 5280 5.3.1), by number.
const REASONS: [&str; 11] = [
    "unspecified",
    "keyCompromise",
    "cACompromise",
    "affiliationChanged",
    "superseded",
    "cessationOfOperation",
    "certificateHold",
    "(UNKNOWN)",
    "removeFromCRL",
    "privilegeWithdrawn",
    "aACompromise",
];

/// What HAProxy names a response by: the certificate's id in DER.
pub(super) fn key(response: &OcspResponse) -> String {
    response.id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// `show ssl ocsp-response [ID]`.
pub(in super::super) fn show(control: &Control, call: &Call) -> CommandResponse {
    let entries = control.line.store().entries();
    let responses = entries.iter().filter_map(|entry| OcspResponse::read(&entry.certificate().ocsp()?).ok());
    let id = call.arg(0);
    if !id.is_empty() {
        let mut responses = responses;
        return match responses.find(|response| key(response).eq_ignore_ascii_case(id)) {
            Some(response) => CommandResponse::Data(text(&response)),
            None => CommandResponse::error("Certificate ID does not match any certificate.\n"),
        };
    }
    let mut shown: Vec<String> = responses
        .map(|response| {
            format!(
                "Certificate ID key : {}\n Certificate ID:\n   Issuer Name Hash: {}\n   Issuer Key Hash: {}\n   \
                 Serial Number: {}\n",
                key(&response),
                hex(&response.issuer_name),
                hex(&response.issuer_key),
                hex(&response.serial),
            )
        })
        .collect();
    if shown.is_empty() {
        return CommandResponse::Done;
    }
    shown.sort();
    // Several certificates may have the same response.
    shown.dedup();
    CommandResponse::Data("# Certificate IDs\n".to_owned() + &shown.concat())
}

/// A response in OpenSSL's words, up to its signature.
pub(super) fn text(response: &OcspResponse) -> String {
    let next = response.next_update.as_ref().map(|next| format!("    Next Update: {next}\n")).unwrap_or_default();
    let revoked = response.revoked_at.as_ref().map(|at| format!("    Revocation Time: {at}\n")).unwrap_or_default();
    let reason = response.reason.map(|reason| {
        format!("    Revocation Reason: {} (0x{reason:x})\n", REASONS.get(usize::from(reason)).unwrap_or(&"(UNKNOWN)"))
    });
    let revoked = revoked + &reason.unwrap_or_default();
    let responder = response.responder.trim_start_matches('/').replace('/', ", ").replace('=', " = ");
    format!(
        "OCSP Response Data:\n    OCSP Response Status: successful (0x0)\n    Response Type: Basic OCSP Response\n    \
         Version: 1 (0x0)\n    Responder Id: {responder}\n    Produced At: {}\n    Responses:\n    Certificate ID:\n      \
         Hash Algorithm: {}\n      Issuer Name Hash: {}\n      Issuer Key Hash: {}\n      Serial Number: {}\n    \
         Cert Status: {}\n{revoked}    This Update: {}\n{next}",
        response.produced_at,
        response.hash,
        hex(&response.issuer_name),
        hex(&response.issuer_key),
        hex(&response.serial),
        response.status,
        response.this_update,
    )
}

/// `set ssl ocsp-response BASE64`, or as payload.
pub(in super::super) fn set(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let payload = call.payload.as_deref().filter(|payload| !payload.is_empty());
    let Some(text) = payload.or_else(|| Some(call.arg(0).as_bytes()).filter(|text| !text.is_empty())) else {
        return Err(CommandResponse::error("'set ssl ocsp-response' expects response in base64 encoding.\n"));
    };
    let Some(der) = decode(text) else {
        return Err(CommandResponse::error("'set ssl ocsp-response' received invalid base64 encoded response.\n"));
    };
    let now = i64::try_from(crate::tickets::wall_seconds()).unwrap_or(i64::MAX);
    let read = OcspResponse::read(&der).and_then(|response| response.check(now).map(|()| response));
    let response = match read {
        Ok(response) => response,
        // HAProxy ends this one twice.
        Err(fault @ OcspError::Dates) => return Err(CommandResponse::error(format!("{fault}..\n"))),
        Err(fault) => return Err(CommandResponse::error(format!("{fault}.\n"))),
    };
    let entries = staging.line.store().entries();
    if !entries.iter().any(|entry| response.is_about(&entry.certificate())) {
        let text = "OCSP single response: Certificate ID does not match any certificate or issuer.\n";
        return Err(CommandResponse::error(text));
    }
    Ok(Altering::new(Change::OcspResponse { response, der }, CommandResponse::info("OCSP Response updated!\n")))
}
