//! Compiles the BPF program with clang, when the feature `bpf` asks for it.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bpf/choose.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("choose.o");
    // The kernel's headers include some that Debian keeps by architecture.
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let include = format!("/usr/include/{architecture}-linux-gnu");
    let endian = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    let done = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", endian, "-I", &include, "-c", SOURCE, "-o"])
        .arg(&object)
        .status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} did not compile {SOURCE} ({status})"),
        Err(error) => panic!(
            "the feature 'bpf' needs clang, and '{clang}' cannot be started: {error}; install it (apt-get install clang), \
             name it (CLANG=...), or build without the feature"
        ),
    }
}
