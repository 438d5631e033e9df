"""The example on its generated names, and on files."""

import sqlite3

from examples import short_texts


def test_generated_names(tmp_path, capsys):
    found = short_texts.main(out=tmp_path, effort="fast", verbose=0)
    assert found["precision_at_1"] > 0.6 and found["recall_at_5"] > 0.8
    assert "kind='chars'" in capsys.readouterr().out
    assert (tmp_path / "1" / "saved_model.pb").exists()


def test_a_text_is_learned_or_tested():
    pairs = [(f"名{i // 2}", f"tag{i % 2}") for i in range(60)]
    train, test = short_texts.split(pairs)
    assert sorted(train + test) == sorted(pairs) and len(test) == 6
    assert not {text for text, _ in train} & {text for text, _ in test}


def test_files(tmp_path):
    path = tmp_path / "goods.tsv"
    path.write_text("緑茶 ５００ｍｌ\tD1\n木製椅子\tF2\n", encoding="utf8")
    pairs = [("緑茶 ５００ｍｌ", "D1"), ("木製椅子", "F2")]
    assert short_texts.read(path) == pairs
    database = sqlite3.connect(tmp_path / "jamdict.db")
    database.executescript(
        "create table NEKanji (idseq, text); create table NEKana (idseq, text);"
        "create table NETranslation (ID, idseq);"
        "create table NETransType (tid, text);"
        "insert into NETransType values (9, 'fem'), (8, 'place')"
    )
    for i, name in enumerate("明秋昭章晶"):
        database.execute("insert into NEKanji values (?, ?)", (i, name))
        database.execute("insert into NEKana values (?, 'あき')", (i,))
        database.execute("insert into NETranslation values (9, ?)", (i,))
    database.execute("insert into NEKanji values (7, '秋田')")
    database.execute("insert into NEKana values (7, 'あきた')")
    database.execute("insert into NETranslation values (8, 7)")
    database.commit()
    database.close()
    names = short_texts.read(tmp_path / "jamdict.db")
    assert len(names) == 5 and {tag for _, tag in names} == {"あき"}
