"""Which of the classes that LSH tables give, or gave before, a step has."""

import tensorflow as tf

from tfxclass.samplers.candidates import left_by
from tfxclass.samplers.candidates import part_of
from tfxclass.samplers.masses import log_masses
from tfxclass.samplers.masses import times_the_room
from tfxclass.samplers.sample_size import count_labels


class LSHChoice:
    """Mixin of `LSHSampler`, whose attributes it reads.

    `asked`, `valid` of its methods are what `hashed_queries` returns.
    """

    def _times(self):
        """How many times the room votes give."""
        if self.rescored is not None:
            return self.rescored
        if self.correction != "fill":
            return 1
        return times_the_room(self.num_sampled)

    def _choose(self, asked, valid, queries, target_ids, kernel):
        """`(found, chosen)`: what tables gave, and the classes of the step."""
        room = left_by(target_ids, self._size(target_ids))
        places = part_of(room, self.neighbor_fraction)
        propose = self._from_votes
        if self.neighbor_cache is not None:
            propose = self._from_cache
        found, ids, scores = propose(
            asked, valid, queries, target_ids, kernel, room, places
        )
        chosen = self.choose(
            target_ids,
            candidates=ids,
            scores=scores,
            candidate_share=self.neighbor_fraction,
            sample_overflow=False,
        )
        self.note_places(chosen.places_used)
        return found, chosen

    def _size(self, target_ids):
        return self.size_for(count_labels(target_ids))

    def _query(self, asked, valid, target_ids, pool):
        most = self._times() * self._size(target_ids)
        return self.index.query(
            asked, valid, target_ids, most, pool, self.next_seed()
        )

    def _from_votes(
        self, asked, valid, queries, target_ids, kernel, room, places
    ):
        """`(found, ids, scores)`: tables are read for all rows."""
        times, pool = self._times(), places
        if times > 1:  # the logits decide, of no fewer for many labels
            most = part_of(self._size(target_ids), self.neighbor_fraction)
            pool = times * tf.minimum(room, most)
        found = self._query(asked, valid, target_ids, pool)
        ids = found.candidates
        if times == 1:
            return found, ids, tf.zeros_like(ids, tf.float32)
        unit = self.similarity == "cosine"
        return found, ids, log_masses(queries, target_ids, ids, kernel, unit)

    def _from_cache(
        self, asked, valid, queries, target_ids, kernel, room, places
    ):
        """As `_from_votes`: tables for some rows, the cache for the others."""
        times, batch = self._times(), tf.shape(queries, tf.int64)[0]
        wanted = times * (places // tf.maximum(batch, 1) + 1)
        pool = self.query_fraction() * tf.cast(times * places, tf.float32)
        pool = tf.maximum(tf.cast(pool, tf.int64), wanted)
        found = []

        def find(rows):
            one = self._query(
                tf.gather(asked, rows), tf.gather(valid, rows), target_ids, pool
            )
            found.append(one)
            shape = [tf.size(rows), tf.size(one.candidates)]
            return tf.broadcast_to(one.candidates, shape)

        wanted = tf.minimum(wanted, self.num_classes)
        ids, shares = self.search_with_cache(
            queries, target_ids, kernel, wanted, find
        )
        return found[0], ids, shares
