//! The book on disk, so that an agent that starts without a control plane knows what its work is.
//!
//! Owns: one file, replaced as a whole: written beside, synced, renamed, directory synced.
//! Invariant: what is read back was written completely; anything else counts as no file, and is kept for a person to see.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::book::Book;

/// In front of the checksum, so that a later version can tell its file from this one.
const FORMAT: &str = "longshore-work-1";

#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
}

impl Ledger {
    pub(crate) fn in_folder(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { path: folder.join("work.json") })
    }

    /// The book as it was last written. A file that is torn or foreign costs nothing but the knowledge in it: the next
    /// snapshot brings it back, and nothing is stopped before that.
    pub(crate) fn read(&self) -> io::Result<Book> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Book::default()),
            Err(error) => return Err(error),
        };
        if let Some(book) = whole(&text) {
            return Ok(book);
        }
        tracing::warn!(path = %self.path.display(), "the list of work on disk is damaged and is put aside");
        fs::rename(&self.path, self.path.with_extension("damaged"))?;
        Ok(Book::default())
    }

    pub(crate) fn write(&self, book: &Book) -> io::Result<()> {
        let body = serde_json::to_string(book)?;
        let beside = self.path.with_extension("new");
        let mut file = File::create(&beside)?;
        writeln!(file, "{FORMAT} {}", checksum(&body))?;
        file.write_all(body.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        sync_folder_of(&self.path)
    }
}

/// A rename is only on disk when its directory is.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn whole(text: &str) -> Option<Book> {
    let (head, body) = text.split_once('\n')?;
    let sum = head.strip_prefix(FORMAT)?.trim();
    (sum == checksum(body)).then(|| serde_json::from_str(body).ok())?
}

fn checksum(body: &str) -> String {
    Sha256::digest(body.as_bytes()).iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use longshore_model::{Cursor, StateIndex, WorkFeed};

    use super::*;
    use crate::book::tests::work;

    fn written() -> (tempfile::TempDir, Ledger, Book) {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::in_folder(folder.path()).unwrap();
        let mut book = Book::default();
        let cursor = Cursor { incarnation: 0, index: StateIndex(3) };
        book.take(WorkFeed::Snapshot { cursor, work: vec![work(0, 1)] });
        ledger.write(&book).unwrap();
        (folder, ledger, book)
    }

    #[test]
    fn it_remembers_over_a_restart() {
        let (_folder, ledger, book) = written();
        assert_eq!(ledger.read().unwrap(), book);
    }

    #[test]
    fn a_torn_file_is_put_aside_wherever_it_was_torn() {
        let (folder, ledger, _) = written();
        let whole = fs::read(folder.path().join("work.json")).unwrap();
        for length in 0..whole.len() {
            fs::write(folder.path().join("work.json"), &whole[..length]).unwrap();
            assert_eq!(ledger.read().unwrap(), Book::default(), "torn after {length} bytes");
        }
        assert!(folder.path().join("work.damaged").exists());
    }

    #[test]
    fn a_flipped_byte_is_noticed() {
        let (folder, ledger, _) = written();
        let mut bytes = fs::read(folder.path().join("work.json")).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(folder.path().join("work.json"), bytes).unwrap();
        assert_eq!(ledger.read().unwrap(), Book::default());
    }
}
