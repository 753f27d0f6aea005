"""Work for SQL: slips, fillings that refute them, and the bundled questions, whose fillings do so already."""

from random import Random

import rlvr
from rlvr.testing.work import Work, maker_for
from rlvr.verifiers.sql import SQLVerifier
from rlvr.verifiers.sql_operators import query_slips

SCHEMA = "CREATE TABLE pets (id INTEGER PRIMARY KEY, name TEXT, age INTEGER);"
ROW = {
    "prompt": "The names of pets older than 3.",
    "reference": {
        "schema": SCHEMA,
        "query": "SELECT name FROM pets WHERE age > 3",
        "fillings": [{"pets": [[1, "Rex", 5], [2, "Tom", 1]]}, {"pets": [[1, "Ada", 9]]}],
    },
}


def _env():
    return rlvr.Environment.from_rows([ROW], verifier=SQLVerifier(), example=lambda task: (
        f"```sql\n{task.reference['query']}\n```"))  # fmt: skip


def test_slips_of_a_query_by_hand():
    """Comparison, threshold, aggregate, DISTINCT, order, join, group, columns, clauses: one of each, made once."""
    query = "SELECT name, SUM(age) FROM pets p JOIN homes h ON h.id = p.id WHERE age > 3 GROUP BY name ORDER BY name"
    made = dict(query_slips(query, ["name", "age"]))
    for text, operator in [
        (query.replace("> 3", ">= 3"), "comparison"),
        (query.replace("> 3", "> 4"), "constant"),
        (query.replace("SUM", "MAX"), "aggregate"),
        (query.replace("SELECT", "SELECT DISTINCT"), "distinct"),
        (query + " DESC", "order"),
        (query.replace("JOIN", "LEFT JOIN"), "join"),
        (query.replace(" WHERE age > 3", ""), "dropped clause"),
        (query.replace("WHERE age", "WHERE name"), "column"),
    ]:
        assert made[text] == operator, text
    assert query not in made


def test_a_threshold_that_no_row_holds_is_a_hole_until_a_filling_does():
    """No pet is 3 years old, so >= is paid for >; the witness is one row, and with it >= is refused."""
    env = _env()
    task, maker = env.task(0), maker_for(env)
    slip = Work("```sql\nSELECT name FROM pets WHERE age >= 3\n```", "own")
    assert env.score(task, slip.text).verdict.correct
    witness = maker.witness(task, slip)
    assert [row[2] for row in witness.case["pets"]] == [3]
    mended = maker.mend(task, [witness])
    assert not env.score(mended, slip.text).verdict.correct
    for right in maker.right(task, Random(0)):
        assert env.score(mended, right.text).verdict.correct, right
        assert maker.witness(task, right) is None, right


def test_the_bundled_questions_pay_no_slip_that_a_filling_refutes():
    """Thresholds, DISTINCT, joins, groups, order: what a random filling left open in 76 of 90 questions."""
    env = rlvr.make("sql-v4")
    maker = maker_for(env)
    for index in range(8):
        task, wrong = env.task(index), 0
        for work in maker.wrong(task, Random(index)):
            if maker.witness(task, work) is not None:
                wrong += 1
                assert not env.score(task, work.text).verdict.correct, work
        assert wrong, task.id
