//! Compiles the BPF programs with clang, when the feature `bpf` asks for them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const PROGRAMS: [&str; 3] = ["choose", "direct", "stack"];
const HEADERS: [&str; 2] = ["src/bpf/direct/maps.h", "src/bpf/direct/read.h"];

fn main() {
    for program in PROGRAMS {
        println!("cargo::rerun-if-changed={}", source(program));
    }
    for header in HEADERS {
        println!("cargo::rerun-if-changed={header}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    PROGRAMS.into_iter().for_each(compile);
}

fn source(program: &str) -> String {
    format!("src/bpf/{program}.c")
}

fn compile(program: &str) {
    let source = source(program);
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let object = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join(format!("{program}.o"));
    // The kernel's headers include some that Debian keeps by architecture.
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let include = format!("/usr/include/{architecture}-linux-gnu");
    let endian = match env::var("CARGO_CFG_TARGET_ENDIAN").as_deref() {
        Ok("big") => "bpfeb",
        _ => "bpfel",
    };
    let done = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", endian, "-I", &include, "-c", &source, "-o"])
        .arg(&object)
        .status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} did not compile {source} ({status})"),
        Err(error) => panic!(
            "the feature 'bpf' needs clang, and '{clang}' cannot be started: {error}; install it (apt-get install clang), \
             name it (CLANG=...), or build without the feature"
        ),
    }
}
