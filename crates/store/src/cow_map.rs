//! A copy-on-write map: clones share their contents, and a writer copies only what it changes.
//!
//! Owns: the copy on write. A clone is free; the first change after it copies the map of pointers, and each value is
//! copied when it is first changed.
//! Must not touch: order and equality, which are those of a `BTreeMap` with the same contents.
//! Invariant: a clone never changes when the original does.

use std::{
    collections::{BTreeMap, btree_map},
    fmt,
    ops::RangeBounds,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A `BTreeMap` behind an `Arc`, with each value behind an `Arc` of its own.
pub(crate) struct CowMap<K, V> {
    map: Arc<BTreeMap<K, Arc<V>>>,
}

impl<K: Ord + Clone, V: Clone> CowMap<K, V> {
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.map.get(key).map(|value| &**value)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.map.contains_key(key)
    }

    /// A mutable reference to a value. Copies nothing if the key is absent.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if !self.map.contains_key(key) {
            return None;
        }
        Arc::make_mut(&mut self.map).get_mut(key).map(Arc::make_mut)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        Arc::make_mut(&mut self.map).insert(key, Arc::new(value));
    }

    /// A mutable reference to a key's value, which is inserted first if absent.
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        Arc::make_mut(Arc::make_mut(&mut self.map).entry(key).or_insert_with(|| Arc::new(make())))
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if self.map.contains_key(key) {
            Arc::make_mut(&mut self.map).remove(key);
        }
    }

    pub(crate) fn iter(&self) -> Iter<'_, K, V> {
        Iter(self.map.iter())
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.map.values().map(|value| &**value)
    }

    pub(crate) fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        self.map.range(range).map(|(key, value)| (key, &**value))
    }

    /// Mutable references to all values. Copies everything that a clone shares, so use it rarely.
    pub(crate) fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        IterMut(Arc::make_mut(&mut self.map).iter_mut())
    }

    /// Like [`iter_mut`](Self::iter_mut), without the keys.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

pub(crate) struct Iter<'a, K, V>(btree_map::Iter<'a, K, Arc<V>>);

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key, &**value))
    }
}

impl<'a, K: Ord + Clone, V: Clone> IntoIterator for &'a CowMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

pub(crate) struct IterMut<'a, K, V>(btree_map::IterMut<'a, K, Arc<V>>);

impl<'a, K, V: Clone> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, &'a mut V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key, Arc::make_mut(value)))
    }
}

impl<'a, K: Ord + Clone, V: Clone> IntoIterator for &'a mut CowMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<K, V> Clone for CowMap<K, V> {
    fn clone(&self) -> Self {
        Self { map: Arc::clone(&self.map) }
    }
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        Self { map: Arc::default() }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for CowMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.map, &other.map) || self.map == other.map
    }
}

impl<K: Eq, V: Eq> Eq for CowMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for CowMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}

impl<K: Serialize, V: Serialize> Serialize for CowMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.map.serialize(serializer)
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for CowMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { map: Arc::new(BTreeMap::deserialize(deserializer)?) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(map: &CowMap<u8, u32>) -> Vec<(u8, u32)> {
        map.iter().map(|(key, value)| (*key, *value)).collect()
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_btree_map_and_its_clones_never_change(
            steps in prop::collection::vec((0_u8..6, 0_u8..12, any::<u32>()), 0..60),
        ) {
            let (mut map, mut plain) = (CowMap::<u8, u32>::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (step, key, value) in steps {
                match step {
                    0 => { map.insert(key, value); plain.insert(key, value); }
                    1 => { map.remove(&key); plain.remove(&key); }
                    2 => if let Some(found) = map.get_mut(&key) { *found = value; plain.insert(key, value); },
                    3 => { *map.get_or_insert_with(key, || 0) ^= value; *plain.entry(key).or_insert(0) ^= value; }
                    4 => {
                        for found in map.values_mut().chain(plain.values_mut()) {
                            *found = found.wrapping_add(1);
                        }
                    }
                    _ => copies.push((map.clone(), plain.clone())),
                }
                prop_assert_eq!(map.get(&key), plain.get(&key));
                prop_assert_eq!(map.contains_key(&key), plain.contains_key(&key));
            }
            copies.push((map, plain));
            for (copy, was) in copies {
                prop_assert_eq!(contents(&copy), was.clone().into_iter().collect::<Vec<_>>());
                prop_assert!(copy.range(5..).map(|(key, _)| *key).eq(was.range(5..).map(|(key, _)| *key)));
            }
        }
    }
}
