//! Heads as rules and routing see them: what they say, not where their bytes lie.
//!
//! A head is spans over the buffer that it was read into, and over an area for what was added. A view holds the two together, so that
//! who looks at a message, or changes it, knows of neither.

use crate::headers::{Field, Headers};
use crate::method::{Method, Version};
use crate::name::Name;
use crate::request::RequestHead;
use crate::response::ResponseHead;
use crate::target::TargetForm;

/// What a request's head says.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    head: &'a RequestHead,
    buf: &'a [u8],
}

impl<'a> RequestView<'a> {
    /// The head that was parsed from `buf`.
    pub fn new(head: &'a RequestHead, buf: &'a [u8]) -> RequestView<'a> {
        RequestView { head, buf }
    }

    /// The method.
    pub fn method(self) -> Method {
        self.head.method
    }

    /// The method's text.
    pub fn method_text(self) -> &'a [u8] {
        self.head.method_text(self.buf)
    }

    /// The version the client speaks.
    pub fn version(self) -> Version {
        self.head.version
    }

    /// The version as it was received.
    pub fn version_text(self) -> &'a [u8] {
        self.head.version_text(self.buf)
    }

    /// The whole target (HAProxy's `url`).
    pub fn target(self) -> &'a [u8] {
        self.head.target(self.buf)
    }

    /// The target's form.
    pub fn form(self) -> TargetForm {
        self.head.form()
    }

    /// The authority of an absolute or CONNECT target.
    pub fn authority(self) -> &'a [u8] {
        self.head.authority(self.buf)
    }

    /// HAProxy's `path`.
    pub fn path(self) -> &'a [u8] {
        self.head.path(self.buf)
    }

    /// HAProxy's `pathq`.
    pub fn path_and_query(self) -> &'a [u8] {
        self.head.path_and_query(self.buf)
    }

    /// HAProxy's `query`.
    pub fn query(self) -> Option<&'a [u8]> {
        self.head.query(self.buf)
    }

    /// The value of `Host`, if there is one.
    pub fn host(self) -> Option<&'a [u8]> {
        self.head.host(self.buf)
    }

    /// The fields.
    pub fn fields(self) -> FieldsView<'a> {
        FieldsView { headers: &self.head.headers, buf: self.buf }
    }

    /// Appends the head to `out`, its empty line included.
    pub fn write(self, out: &mut Vec<u8>) {
        self.head.write(self.buf, out);
    }

    /// Appends the request line to `out`, a blank between its words.
    pub fn write_line(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.method_text());
        out.push(b' ');
        out.extend_from_slice(self.target());
        out.push(b' ');
        out.extend_from_slice(self.version_text());
    }

    /// The bytes that the head was received in, without the empty lines before it.
    pub fn received(self) -> &'a [u8] {
        self.buf.get(self.head.blank()..).unwrap_or(&[])
    }

    /// How many bytes it was received in.
    pub fn received_len(self) -> usize {
        self.buf.len()
    }
}

/// A request's head that may be changed.
#[derive(Debug)]
pub struct RequestMut<'a> {
    head: &'a mut RequestHead,
    buf: &'a [u8],
}

impl<'a> RequestMut<'a> {
    /// The head that was parsed from `buf`.
    pub fn new(head: &'a mut RequestHead, buf: &'a [u8]) -> RequestMut<'a> {
        RequestMut { head, buf }
    }

    /// What it says.
    pub fn view(&self) -> RequestView<'_> {
        RequestView { head: self.head, buf: self.buf }
    }

    /// Changes the method: see [`RequestHead::set_method`].
    pub fn set_method(&mut self, method: &[u8]) {
        self.head.set_method(method);
    }

    /// Changes the target: see [`RequestHead::set_target`].
    pub fn set_target(&mut self, target: &[u8]) -> bool {
        self.head.set_target(target)
    }

    /// An absolute target takes over what `Host` says now: see [`RequestHead::follow_host`].
    pub fn follow_host(&mut self) -> bool {
        self.head.follow_host(self.buf)
    }

    /// The fields.
    pub fn fields(&mut self) -> FieldsMut<'_> {
        FieldsMut { headers: &mut self.head.headers, buf: self.buf }
    }
}

/// What a response's head says.
#[derive(Clone, Copy, Debug)]
pub struct ResponseView<'a> {
    head: &'a ResponseHead,
    buf: &'a [u8],
}

impl<'a> ResponseView<'a> {
    /// The head that was parsed from `buf`.
    pub fn new(head: &'a ResponseHead, buf: &'a [u8]) -> ResponseView<'a> {
        ResponseView { head, buf }
    }

    /// The status code.
    pub fn status(self) -> u16 {
        self.head.status
    }

    /// The version the server answered with.
    pub fn version(self) -> Version {
        self.head.version
    }

    /// The reason phrase, perhaps empty.
    pub fn reason(self) -> &'a [u8] {
        self.head.reason(self.buf)
    }

    /// The fields.
    pub fn fields(self) -> FieldsView<'a> {
        FieldsView { headers: &self.head.headers, buf: self.buf }
    }

    /// Appends the head to `out`, its empty line included.
    pub fn write(self, out: &mut Vec<u8>) {
        self.head.write(self.buf, out);
    }

    /// How many bytes it was received in: there the body begins.
    pub fn received_len(self) -> usize {
        self.head.received_len()
    }

    /// Bytes of fields that were taken out when it was read.
    pub fn dropped(self) -> usize {
        self.head.dropped
    }
}

/// A response's head that may be changed.
#[derive(Debug)]
pub struct ResponseMut<'a> {
    head: &'a mut ResponseHead,
    buf: &'a [u8],
}

impl<'a> ResponseMut<'a> {
    /// The head that was parsed from `buf`.
    pub fn new(head: &'a mut ResponseHead, buf: &'a [u8]) -> ResponseMut<'a> {
        ResponseMut { head, buf }
    }

    /// What it says.
    pub fn view(&self) -> ResponseView<'_> {
        ResponseView { head: self.head, buf: self.buf }
    }

    /// Changes status and reason: see [`ResponseHead::set_status`].
    pub fn set_status(&mut self, status: u16, reason: &[u8]) {
        self.head.set_status(status, reason);
    }

    /// The fields.
    pub fn fields(&mut self) -> FieldsMut<'_> {
        FieldsMut { headers: &mut self.head.headers, buf: self.buf }
    }
}

/// The fields of a head.
#[derive(Clone, Copy, Debug)]
pub struct FieldsView<'a> {
    headers: &'a Headers,
    buf: &'a [u8],
}

impl<'a> FieldsView<'a> {
    /// All in order.
    pub fn iter(self) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        self.headers.iter(self.buf)
    }

    /// The fields called `name` (any case), in order.
    pub fn all(self, name: &'a [u8]) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        self.headers.all(self.buf, name)
    }

    /// The first field called `name` (any case).
    pub fn find(self, name: &'a [u8]) -> Option<Field<'a>> {
        self.headers.find(self.buf, name)
    }

    /// The first field with the known name `id`.
    pub fn known(self, id: Name) -> Option<Field<'a>> {
        self.headers.known(self.buf, id)
    }

    /// The fields with the known name `id`, in order.
    pub fn all_known(self, id: Name) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        self.headers.all_known(self.buf, id)
    }

    /// The full-line values of the fields called `name`, in order (HAProxy's `fhdr`).
    pub fn lines(self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        self.headers.lines(self.buf, name)
    }

    /// The comma-separated values of the fields called `name`, in order (HAProxy's `hdr`).
    pub fn values(self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        self.headers.values(self.buf, name)
    }

    /// Bytes of all names and values.
    pub fn bytes(self) -> usize {
        self.headers.bytes()
    }
}

/// The fields of a head that may be changed.
#[derive(Debug)]
pub struct FieldsMut<'a> {
    headers: &'a mut Headers,
    buf: &'a [u8],
}

impl FieldsMut<'_> {
    /// What they say.
    pub fn view(&self) -> FieldsView<'_> {
        FieldsView { headers: self.headers, buf: self.buf }
    }

    /// Appends a field: see [`Headers::add`].
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        self.headers.add(name, value);
    }

    /// Removes all fields called `name`; returns how many there were.
    pub fn remove(&mut self, name: &[u8]) -> usize {
        self.headers.remove(self.buf, name)
    }

    /// Removes all fields called `name` and appends one.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.headers.set(self.buf, name, value);
    }

    /// Removes the field at `index`.
    pub fn remove_at(&mut self, index: usize) {
        self.headers.remove_at(index);
    }

    /// Changes the value of the field at `index` in its place.
    pub fn replace_value(&mut self, index: usize, value: &[u8]) {
        self.headers.replace_value(index, value);
    }
}
