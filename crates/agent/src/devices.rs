//! Graphics processors of this machine, as far as they can be found without being told.
//!
//! NVIDIA's are asked of `nvidia-smi`; where that is missing, and for AMD's, the kernel's list of PCI devices is read.
//!
//! Owns: asking, and turning the answers into groups of equal devices.
//! Must not touch: what operators declare; a declared kind replaces what is found here.
//! Invariant: what does not answer, or answers nonsense, is no device.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use longshore_model::device::DeviceGroup;
use tokio::process::Command;

/// The kind of every device found here, as manifests ask for it (`gpus`, `capabilities: [gpu]`).
const KIND: &str = "gpu";
/// A driver that hangs must not keep the node from reporting.
const TOOL_TIMEOUT: Duration = Duration::from_secs(5);
/// Most devices that one machine can have; more is a broken answer.
const MOST_DEVICES: usize = 1_024;

/// Finds the devices, in groups of equal ones, in the order of their ids.
pub(crate) async fn find(sysfs: &Path) -> Vec<DeviceGroup> {
    let mut found = match nvidia_smi().await {
        Some(answer) => nvidia_devices(&answer),
        None => pci_devices(sysfs, Vendor::Nvidia),
    };
    found.extend(pci_devices(sysfs, Vendor::Amd));
    found.truncate(MOST_DEVICES);
    grouped(found)
}

/// One device.
#[derive(Debug, PartialEq, Eq)]
struct Device {
    vendor: Vendor,
    name: String,
    memory_mib: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vendor {
    Nvidia,
    Amd,
}

impl Vendor {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
        }
    }

    /// As the kernel writes it.
    const fn pci_id(self) -> &'static str {
        match self {
            Self::Nvidia => "0x10de",
            Self::Amd => "0x1002",
        }
    }
}

/// The answer of NVIDIA's tool; `None` where there is no tool, or it fails.
async fn nvidia_smi() -> Option<String> {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]).kill_on_drop(true);
    let output = tokio::time::timeout(TOOL_TIMEOUT, command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads lines such as `NVIDIA A100-SXM4-80GB, 81920`.
fn nvidia_devices(answer: &str) -> Vec<Device> {
    let device = |line: &str| {
        let (name, memory) = line.rsplit_once(',')?;
        let memory_mib = memory.trim().parse().ok();
        Some(Device { vendor: Vendor::Nvidia, name: model_name(name, Vendor::Nvidia)?, memory_mib })
    };
    answer.lines().filter_map(device).collect()
}

/// The display controllers of a maker, from the kernel.
fn pci_devices(sysfs: &Path, vendor: Vendor) -> Vec<Device> {
    let Ok(entries) = fs::read_dir(sysfs.join("bus/pci/devices")) else { return Vec::new() };
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    let is_wanted = |folder: &&PathBuf| {
        let is_display = read(folder, "class").is_some_and(|class| class.starts_with("0x03"));
        is_display && read(folder, "vendor").as_deref() == Some(vendor.pci_id())
    };
    folders.iter().filter(is_wanted).filter_map(|folder| pci_device(folder, vendor)).collect()
}

fn pci_device(folder: &Path, vendor: Vendor) -> Option<Device> {
    // Only a device that a driver serves can be used by a container.
    folder.join("driver").exists().then_some(())?;
    let name = read(folder, "product_name").filter(|name| !name.is_empty()).or_else(|| read(folder, "device"))?;
    let memory = read(folder, "mem_info_vram_total").and_then(|bytes| bytes.parse::<u64>().ok());
    Some(Device { vendor, name: model_name(&name, vendor)?, memory_mib: memory.map(|bytes| bytes >> 20) })
}

fn read(folder: &Path, file: &str) -> Option<String> {
    fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_owned())
}

/// `NVIDIA A100-SXM4-80GB` as `a100-sxm4-80gb`; `None` if nothing is left.
fn model_name(name: &str, vendor: Vendor) -> Option<String> {
    let lower = name.trim().to_ascii_lowercase();
    let bare = lower.strip_prefix(vendor.as_str()).unwrap_or(&lower).trim();
    let kept: String = bare.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let kept = kept.trim_matches('-').to_owned();
    (!kept.is_empty()).then_some(kept)
}

fn grouped(devices: Vec<Device>) -> Vec<DeviceGroup> {
    let mut groups: BTreeMap<String, DeviceGroup> = BTreeMap::new();
    for Device { vendor, name, memory_mib } in devices {
        let memory = memory_mib.map(|mib| ("memory".to_owned(), format!("{mib}MiB")));
        let group = DeviceGroup {
            vendor: vendor.as_str().to_owned(),
            kind: KIND.to_owned(),
            name,
            count: 0,
            attributes: memory.into_iter().collect(),
        };
        groups.entry(group.id()).or_insert(group).count += 1;
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_devices_are_one_group() {
        let answer = "NVIDIA A100-SXM4-80GB, 81920\nNVIDIA A100-SXM4-80GB, 81920\nTesla T4, 15360\n";
        let groups = grouped(nvidia_devices(answer));
        let rows: Vec<(String, u64, Option<&str>)> =
            groups.iter().map(|group| (group.id(), group.count, group.attribute("memory"))).collect();
        let expected =
            [("nvidia/gpu/a100-sxm4-80gb", 2, Some("81920MiB")), ("nvidia/gpu/tesla-t4", 1, Some("15360MiB"))];
        assert_eq!(rows, expected.map(|(id, count, memory)| (id.to_owned(), count, memory)));
    }

    #[test]
    fn a_tool_that_answers_nonsense_has_no_devices() {
        assert_eq!(nvidia_devices("NVIDIA-SMI has failed because it could not communicate\n\n, 5\n"), []);
    }

    #[test]
    fn the_kernels_list_names_what_a_driver_serves() {
        let sysfs = tempfile::tempdir().unwrap();
        let add = |address: &str, files: &[(&str, &str)], has_driver: bool| {
            let folder = sysfs.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&folder).unwrap();
            for (file, text) in files {
                fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
            if has_driver {
                fs::create_dir(folder.join("driver")).unwrap();
            }
        };
        let mi300 = [
            ("class", "0x038000"),
            ("vendor", "0x1002"),
            ("product_name", "AMD Instinct MI300X"),
            ("mem_info_vram_total", "206141652992"),
        ];
        add("0000:05:00.0", &mi300, true);
        add("0000:06:00.0", &mi300, false);
        add("0000:07:00.0", &[("class", "0x030200"), ("vendor", "0x10de"), ("device", "0x20b0")], true);
        add("0000:08:00.0", &[("class", "0x020000"), ("vendor", "0x1002")], true);
        let found: Vec<Device> =
            [Vendor::Nvidia, Vendor::Amd].into_iter().flat_map(|vendor| pci_devices(sysfs.path(), vendor)).collect();
        let ids: Vec<String> = grouped(found).iter().map(DeviceGroup::id).collect();
        assert_eq!(ids, ["amd/gpu/instinct-mi300x", "nvidia/gpu/0x20b0"]);
    }
}
