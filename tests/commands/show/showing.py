from fsdp_profile.commands import main


def shown(capsys, *args: object) -> str:
    assert main(["show", *map(str, args)]) == 0
    return capsys.readouterr().out
