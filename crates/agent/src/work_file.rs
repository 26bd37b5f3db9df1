//! The desired work on disk, so that an agent that starts without a control plane knows its work.
//!
//! Owns: `work.json`: a line with format and checksum, then the work as JSON.
//! Invariant: what is read back was written completely; any other file counts as absent and is kept for inspection.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use longshore_durable_file::{self as durable_file, Durability};
use longshore_model::hex;
use sha2::{Digest, Sha256};

use crate::desired_work::DesiredWork;

const NAME: &str = "work.json";
/// Before the checksum, so that a later version can distinguish its format from this one.
const FORMAT: &str = "longshore-work-1";

#[derive(Clone, Debug)]
pub(crate) struct WorkFile {
    folder: PathBuf,
}

impl WorkFile {
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The work as last written. A damaged or foreign file is renamed to `work.damaged` and gives no work: the next
    /// snapshot brings it back, and nothing is stopped before that.
    pub(crate) fn read(&self) -> io::Result<DesiredWork> {
        let path = self.folder.join(NAME);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DesiredWork::default()),
            Err(error) => return Err(error),
        };
        if let Some(desired) = parse(&text) {
            return Ok(desired);
        }
        tracing::warn!(path = %path.display(), "the work file is damaged; renaming it to work.damaged");
        fs::rename(&path, path.with_extension("damaged"))?;
        Ok(DesiredWork::default())
    }

    pub(crate) fn write(&self, desired: &DesiredWork) -> io::Result<()> {
        let body = serde_json::to_string(desired)?;
        let text = format!("{FORMAT} {}\n{body}", checksum(&body));
        durable_file::replace(&self.folder.join(NAME), text.as_bytes(), Durability::Synced)
    }
}

/// `None` unless the file is complete.
fn parse(text: &str) -> Option<DesiredWork> {
    let (head, body) = text.split_once('\n')?;
    let sum = head.strip_prefix(FORMAT)?.trim();
    (sum == checksum(body)).then(|| serde_json::from_str(body).ok())?
}

fn checksum(body: &str) -> String {
    hex::encode(&Sha256::digest(body.as_bytes()))
}

#[cfg(test)]
mod tests {
    use longshore_model::{Cursor, StateIndex, WorkFeed};

    use super::*;
    use crate::desired_work::tests::work;

    fn written() -> (tempfile::TempDir, WorkFile, DesiredWork) {
        let folder = tempfile::tempdir().unwrap();
        let file = WorkFile::in_folder(folder.path()).unwrap();
        let mut desired = DesiredWork::default();
        let cursor = Cursor { incarnation: 0, index: StateIndex(3) };
        desired.apply(WorkFeed::Snapshot { cursor, work: vec![work(0, 1)] });
        file.write(&desired).unwrap();
        (folder, file, desired)
    }

    #[test]
    fn written_work_is_read_back() {
        let (_folder, file, desired) = written();
        assert_eq!(file.read().unwrap(), desired);
    }

    #[test]
    fn a_truncated_file_is_put_aside_at_whatever_length() {
        let (folder, file, _) = written();
        let complete = fs::read(folder.path().join("work.json")).unwrap();
        for length in 0..complete.len() {
            fs::write(folder.path().join("work.json"), &complete[..length]).unwrap();
            assert_eq!(file.read().unwrap(), DesiredWork::default(), "truncated after {length} bytes");
        }
        assert!(folder.path().join("work.damaged").exists());
    }

    #[test]
    fn a_flipped_bit_is_detected() {
        let (folder, file, _) = written();
        let mut bytes = fs::read(folder.path().join("work.json")).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(folder.path().join("work.json"), bytes).unwrap();
        assert_eq!(file.read().unwrap(), DesiredWork::default());
    }
}
